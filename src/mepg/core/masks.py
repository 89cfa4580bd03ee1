"""The dropout operator's masks: one draw for both sides of the Bellman equation, or two.

With one draw, the noise of the mask largely cancels in the Bellman residual; with two it adds up. docs/theory.md works
this out.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mepg.core.nets import Mask
from mepg.core.spec import CriticSpec, Dropout
from mepg.core.types import Array, Key

_LEVELS = 2**16  # masks are drawn with 16-bit numbers, so p is met to within 1/131072


def draw_masks(spec: CriticSpec, batch_size: int, key: Key) -> tuple[Mask | None, Mask | None]:
    """m ~ Bernoulli(1-p), scaled by 1/(1-p): the online critics' mask and the target critics'.

    Consistent masks are one draw, given to both (Eq. 4). Two draws are the paper's `-R` ablation.
    With `masks="expected"` none is drawn: the loss holds their average effect.
    """
    dropout = spec.dropout
    if dropout is None or dropout.masks == "expected":
        return None, None
    k_online, k_target = jax.random.split(key)
    rows = batch_size if dropout.rows == "sample" else 1

    def draw(key: Key) -> Mask:
        if not dropout.shared:
            return draw_mask(spec, spec.critics, rows, key)
        mask = draw_mask(spec, 1, rows, key)
        for_all: Mask = jax.tree.map(lambda layer: jnp.broadcast_to(layer, (spec.critics, *layer.shape[1:])), mask)
        return for_all

    online = draw(k_online)
    match dropout.masks:
        case "consistent":
            return online, online
        case "independent":
            return online, draw(k_target)
        case "online":
            return online, None


def mask_variance(dropout: Dropout) -> float:
    """lambda = p / (1 - p), the variance of a unit's mask, for p as 16 bits hold it."""
    threshold = _keep_threshold(dropout)
    return (_LEVELS - threshold) / threshold


def _keep_threshold(dropout: Dropout) -> int:
    return min(max(round((1 - dropout.p) * _LEVELS), 1), _LEVELS)


def draw_mask(spec: CriticSpec, n_critics: int, rows: int, key: Key) -> Mask:
    """`rows` masks for each critic, each of which defines a sub-network."""
    assert spec.dropout is not None
    threshold = _keep_threshold(spec.dropout)
    masked = spec.hidden if spec.dropout.layers == "all" else spec.hidden[-1:]
    keys = jax.random.split(key, len(masked))

    def layer(k: Key, units: int) -> jax.Array:
        bits = random_bits16(k, (n_critics, rows, units))
        # Scaled by the rate at which units are kept, so that the mask's mean is exactly 1.
        return jnp.where(bits < threshold, jnp.float32(_LEVELS / threshold), 0.0)  # [N, rows, H]

    drawn = tuple(map(layer, keys, masked))
    return (None,) * (len(spec.hidden) - len(drawn)) + drawn


def random_bits16(key: Key, shape: tuple[int, ...]) -> Array:
    """Uniform 16-bit integers, four from each hash: JAX's older scheme takes both words, and a word has two in it."""
    *rows, columns = shape
    with jax.threefry_partitionable(False):
        words = jax.random.bits(key, (*rows, (columns + 1) // 2), jnp.uint32)
    return jnp.concatenate([words % 2**16, words // 2**16], axis=-1)[..., :columns]
