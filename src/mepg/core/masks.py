"""The dropout operator's masks: one draw for both sides of the Bellman equation, or two."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mepg.core import chance
from mepg.core.nets import Mask
from mepg.core.spec import Spec
from mepg.core.types import Key

_LEVELS = 2**16  # masks are drawn with 16-bit numbers, so p is met to within 1/131072


def draw_masks(spec: Spec, batch: int, key: Key) -> tuple[Mask | None, Mask | None]:
    """m ~ Bernoulli(1-p), scaled by 1/(1-p): the online critics' mask and the target critics'.

    Consistent masks are one draw, given to both (Eq. 4). Two draws are the paper's `-R` ablation.
    """
    if spec.dropout is None:
        return None, None
    k_online, k_target = jax.random.split(key)
    online = _draw(spec, batch, k_online)
    match spec.dropout.masks:
        case "consistent":
            return online, online
        case "independent":
            return online, _draw(spec, batch, k_target)
        case "online":
            return online, None


def _draw(spec: Spec, batch: int, key: Key) -> Mask:
    assert spec.dropout is not None
    keep = min(max(round((1 - spec.dropout.p) * _LEVELS), 1), _LEVELS)
    rows = batch if spec.dropout.rows == "sample" else 1
    masked = spec.hidden if spec.dropout.layers == "all" else spec.hidden[-1:]
    keys = jax.random.split(key, len(masked))

    def layer(k: Key, units: int) -> jax.Array:
        numbers = chance.numbers16(k, (spec.critics, rows, units))
        # Scaled by the keep-rate that was really drawn, so that the mask's mean is exactly 1.
        return jnp.where(numbers < keep, jnp.float32(_LEVELS / keep), 0.0)  # [N, B or 1, H]

    drawn = tuple(map(layer, keys, masked))
    return (None,) * (len(spec.hidden) - len(drawn)) + drawn
