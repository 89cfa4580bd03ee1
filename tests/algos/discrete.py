"""An algorithm with discrete actions that is nobody's but the user's: a small DQN with a spec of its own."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from mepg.algos import Algorithm
from mepg.core.nets import make_network
from mepg.core.types import Agent, Beliefs, Posterior
from mepg.core.update import adam_step, as_metrics, init_trainable, polyak


@dataclass(frozen=True, kw_only=True)
class Dqn:
    """Double DQN with a target network that follows slowly."""

    hidden: tuple[int, ...] = (64, 64)
    lr: float = 1e-3
    discount: float = 0.99
    target_rate: float = 0.01
    random: float = 0.1  # how often an action is random
    batch_size: int = 64
    replay_size: int = 10_000
    warmup: int = 500
    updates_per_step: int = 1


def build(spec, sizes):
    network = make_network((sizes.obs, *spec.hidden, sizes.action), "uniform")

    def init(key):
        return init_trainable(network.init(key), with_target=True)

    def exploit(state, obs):
        return network.apply(state.params, obs).argmax(axis=-1, keepdims=True).astype(jnp.float32)

    def explore(state, memory, obs, key):
        k_whether, k_which = jax.random.split(key)
        which = jax.random.randint(k_which, (len(obs), 1), 0, sizes.action).astype(jnp.float32)
        return jnp.where(jax.random.uniform(k_whether, (len(obs), 1)) < spec.random, which, exploit(state, obs)), memory

    def value(layers, obs, action):
        return jnp.take_along_axis(network.apply(layers, obs), action.astype(jnp.int32), axis=-1)[:, 0]

    def update(state, batch, key):
        next_action = exploit(state, batch.next_obs)
        target = batch.reward + spec.discount * batch.discount * value(state.target, batch.next_obs, next_action)

        def loss(layers):
            return jnp.square(value(layers, batch.obs, batch.action) - target).mean()

        error, gradient = jax.value_and_grad(loss)(state.params)
        state = adam_step(state, gradient, spec.lr)
        return state._replace(target=polyak(state.params, state.target, spec.target_rate)), as_metrics({"loss": error})

    beliefs = Beliefs(
        lambda state, obs, action: Posterior(value(state.params, obs, action)[None], jnp.zeros((1, len(obs), 0))),
        lambda state, obs, action, key: value(state.params, obs, action),
        lambda state, obs, episode, key: (exploit(state, obs), jnp.zeros(len(obs))),
    )
    return Agent(init, explore, exploit, update, beliefs=beliefs)


dqn = Algorithm(Dqn(), "a small DQN", None, build, ("discrete",))
half = dqn._replace(build=lambda spec, sizes: build(spec, sizes)._replace(exploit=lambda _, obs: 0 * obs[:, :1] + 0.5))
unknown_kind = dqn._replace(actions="discrete")
