"""JAX's settings while it computes for mepg. They hold only during our calls: the process is the user's.

So the same float32 bits come out, whatever JAX_ENABLE_X64 and similar variables say.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

from mepg.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")

# Every setting that bits depend on, at JAX's own default.
_SETTINGS = (
    (jax.enable_x64, False),
    (jax.default_matmul_precision, None),
    (jax.default_prng_impl, "threefry2x32"),
    (jax.threefry_partitionable, True),
    (jax.numpy_dtype_promotion, "standard"),
    (jax.numpy_rank_promotion, "allow"),
)


def with_jax_defaults(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with JAX at these settings during each call."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        start_jax()
        if all(setting.value == value for setting, value in _SETTINGS):  # a microsecond; to set them takes ten
            return function(*args, **kwargs)
        with contextlib.ExitStack() as stack:
            for setting, value in _SETTINGS:
                stack.enter_context(setting(value))
            return function(*args, **kwargs)

    return call


@functools.cache
def start_jax() -> None:
    """Have JAX find its devices, as it would at its first computation; a UsageError if it finds none."""
    try:
        jax.devices()
    except Exception as error:  # JAX_PLATFORMS=cuda, for instance, raises an AssertionError without a message
        if platforms := jax.config.values["jax_platforms"]:
            message = f"JAX_PLATFORMS asks for {platforms!r}, which JAX cannot use here: cpu is always there"
        else:
            message = f"JAX cannot start: {' '.join(str(error).split())[:200]}"
        raise UsageError(message) from None
