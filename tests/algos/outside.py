"""An algorithm that is nobody's but the user's: a spec of its own, no critic, no target network."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from mepg.algos import Algorithm
from mepg.core.nets import make_network
from mepg.core.types import Agent
from mepg.core.update import adam_step, as_metrics, init_trainable


@dataclass(frozen=True, kw_only=True)
class Imitate:
    """A policy that learns to do again what was paid well."""

    lr: float = 1e-2
    discount: float = 0.9
    batch_size: int = 16
    replay_size: int = 1_000
    warmup: int = 100
    updates_per_step: int = 1


def build(spec, sizes):
    network = make_network((sizes.obs, 32, sizes.action), "uniform")

    def init(key):
        return init_trainable(network.init(key), with_target=False)

    def exploit(state, obs):
        return jnp.tanh(network.apply(state.params, obs))

    def explore(state, memory, obs, key):
        return jnp.clip(exploit(state, obs) + 0.3 * jax.random.normal(key, (len(obs), sizes.action)), -1, 1), memory

    def update(state, batch, key):
        def loss(layers):
            weight = jax.nn.softmax(batch.reward)
            error = jnp.tanh(network.apply(layers, batch.obs)) - batch.action
            return (weight * jnp.square(error).sum(axis=-1)).sum()

        value, gradient = jax.value_and_grad(loss)(state.params)
        return adam_step(state, gradient, spec.lr), as_metrics({"loss": value})

    return Agent(init, explore, exploit, update)


imitate = Algorithm(Imitate(), "does again what was paid well", None, build)
me_sac_again = "a name, not an algorithm"
without_warmup = imitate._replace(spec=np.float32(1))


@dataclass(frozen=True, kw_only=True)
class Incomplete:
    """A spec that forgets what the loop needs."""

    batch_size: int = 16
    replay_size: int = 1_000


incomplete = imitate._replace(spec=Incomplete())
