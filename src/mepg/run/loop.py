"""One run of one agent, step by step: it computes and yields; whoever iterates prints, stores or stops."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from mepg.core.types import Agent, Array
from mepg.errors import RunFailure
from mepg.run.config import Config
from mepg.run.envs import Env, Vector
from mepg.run.evaluate import Episode, evaluate
from mepg.run.keys import episode_seed, generator, jax_key
from mepg.run.replay import Replay, row_width, unpack

LOG_EVERY = 1_000  # steps between two rows of metrics
RECENT_EPISODES = 100  # over which the training episodes' mean return is taken, as in Stable-Baselines3


Evaluations = dict[int, list[Episode]]  # by step


class Record(NamedTuple):
    """What happened in one step."""

    step: int
    episode: Episode | None = None  # a training episode ended
    metrics: dict[str, float] | None = None  # every LOG_EVERY steps
    evaluation: list[Episode] | None = None  # every `eval_every` steps, and after the last


class Snapshot(NamedTuple):
    """All that a run needs to go on exactly as if it had never stopped, besides the replay memory."""

    step: int
    state: Any  # the agent's
    memory: Any  # what the agent remembers of the episode under way
    episode: int  # that episode's number
    actions: npt.NDArray[np.float32]  # those taken in it, [n, A]
    recent: list[Episode]
    evaluations: Evaluations
    sums: npt.NDArray[np.float64]  # of the metrics since they were last reported: weighted values, and weights


class Loop:
    """Algorithm 1's outer loop. Between two steps it can be saved (`snapshot`) and put back (`restore`)."""

    def __init__(self, config: Config, agent: Agent, env: Env, eval_env: Env, replay: Replay) -> None:
        self.config, self.env, self.eval_env, self.replay = config, env, eval_env, replay
        self.metric_names = _metric_names(agent, env, config.spec.batch_size)
        self._begin, self._act, self._exploit, self._update = _compile(config, agent, env, self.metric_names)
        # What runs once need not be optimised: the same bits, and with SUNRISE ten seconds less to wait.
        init = jax.jit(agent.init, compiler_options={"xla_backend_optimization_level": 1})
        self.state = init(jax_key(config.seed, "init"))
        self.step = 0
        self.memory: Any  # the agent's, of the episode under way
        self._episode = 0
        self._obs: Vector
        self._actions: list[Vector]
        self._total: float
        self._recent: deque[Episode] = deque(maxlen=RECENT_EPISODES)
        self._pending: list[tuple[int, Array]] = []  # metrics that the device may still be working on
        self._sums = np.zeros((2, len(self.metric_names)))
        self.evaluations: Evaluations = {}
        self.seconds_evaluating = 0.0  # in this session
        self._begin_episode()

    def __iter__(self) -> Iterator[Record]:
        while self.step < self.config.steps:
            self.step += 1
            try:
                record = self._advance()
            except RunFailure as failure:
                raise RunFailure(f"step {self.step}: {failure}") from failure
            yield record

    def _advance(self) -> Record:
        config, spec = self.config, self.config.spec
        action = self._choose_action()
        outcome = self.env.step(action)
        self.replay.add(self._obs, action, outcome.reward, outcome.alive, outcome.obs)
        self._obs = outcome.obs
        self._actions.append(action)
        self._total += outcome.reward
        if self.step > spec.warmup:
            size, rng = spec.updates_per_step * spec.batch_size, generator(config.seed, "replay", self.step)
            self.state, metrics = self._update(self.state, *self.replay.sample(size, rng), self.step)
            self._pending.append((self.step, metrics))

        episode = self._end_episode() if outcome.over else None
        metrics = self._report_metrics() if self.step % LOG_EVERY == 0 else None
        due = self.step % config.eval_every == 0 or self.step == config.steps
        return Record(self.step, episode, metrics, self._evaluate() if due else None)

    def _choose_action(self) -> Vector:
        if self.step <= self.config.spec.warmup:
            rng = generator(self.config.seed, "warmup", self.step)
            return rng.uniform(-1, 1, self.env.sizes.action).astype(np.float32)
        chosen, self.memory = self._act(self.state, self.memory, self._obs, self.step)
        action = np.asarray(chosen)
        if not np.isfinite(action).all():
            self._drain()  # says which quantity went wrong first, if one did
            raise RunFailure(f"the policy's action became {action}")
        return action

    def _begin_episode(self) -> None:
        self._obs = self.env.reset(episode_seed(self.config.seed, "train", self._episode))
        self.memory = self._begin(self._episode)
        self._actions = []
        self._total = 0.0

    def _end_episode(self) -> Episode:
        ended = Episode(self._total, len(self._actions))
        self._recent.append(ended)
        self._episode += 1
        self._begin_episode()
        return ended

    def _evaluate(self) -> list[Episode]:
        self._drain()  # a policy that is no longer finite is not worth playing
        began = time.monotonic()
        seeds = [episode_seed(self.config.seed, "eval", self.step, i) for i in range(self.config.eval_episodes)]
        episodes = evaluate(self.exploit, self.eval_env, seeds)
        self.evaluations[self.step] = episodes
        self.seconds_evaluating += time.monotonic() - began
        return episodes

    def exploit(self, obs: Vector) -> Vector:
        """The action without exploration."""
        return np.asarray(self._exploit(self.state, obs))

    def _report_metrics(self) -> dict[str, float]:
        self._drain()
        report: dict[str, float] = {}
        if self._recent:
            report["rollout/ep_rew_mean"] = float(np.mean([e.total for e in self._recent]))
            report["rollout/ep_len_mean"] = float(np.mean([e.length for e in self._recent]))
        report["train/n_updates"] = max(0, self.step - self.config.spec.warmup) * self.config.spec.updates_per_step
        for name, total, weight in zip(self.metric_names, *self._sums, strict=True):
            if weight:
                report[f"train/{name}"] = float(total / weight)
        self._sums[:] = 0
        return report

    def _drain(self) -> None:
        """Wait for the updates so far and add up their metrics, one by one: the order must not depend on when."""
        updates = ((step, update) for step, several in self._pending for update in np.asarray(several, np.float64))
        for step, (values, weights) in updates:
            if not np.isfinite(values).all():
                index = int(np.flatnonzero(~np.isfinite(values))[0])
                raise RunFailure(f"{self.metric_names[index]} became {values[index]} in the update of step {step}")
            self._sums += values * weights, weights
        self._pending.clear()

    def snapshot(self) -> Snapshot:
        self._drain()
        actions = np.array(self._actions, np.float32).reshape(-1, self.env.sizes.action)
        recent, evaluations, sums = list(self._recent), dict(self.evaluations), self._sums.copy()
        return Snapshot(self.step, self.state, self.memory, self._episode, actions, recent, evaluations, sums)

    def restore(self, snapshot: Snapshot) -> bool:
        """Go back to a snapshot; the replay memory must already be there.

        The episode that was under way is rebuilt by taking its actions again. False if that did not
        give the observations that the replay memory holds: then the environment is not reproducible,
        and a new episode has been begun.
        """
        self.step, self._episode = snapshot.step, snapshot.episode
        self.state = jax.tree.map(jnp.array, snapshot.state)
        self._recent = deque(snapshot.recent, maxlen=RECENT_EPISODES)
        self.evaluations, self._sums = dict(snapshot.evaluations), snapshot.sums.copy()
        self._pending.clear()
        self._begin_episode()
        seen = []
        for action in snapshot.actions:
            outcome = self.env.step(action)
            self._obs = outcome.obs
            self._total += outcome.reward
            self._actions.append(action)
            seen.append([outcome.reward, *outcome.obs])
            if outcome.over:
                break
        known = min(len(seen), len(self.replay))  # an episode may be longer than the ring
        rows = self.replay.read(self.replay.count - known, self.replay.count)
        s, a = self.env.sizes
        remembered = np.delete(rows[:, s + a :], 1, axis=1)  # reward and s', without alive
        same = len(seen) == len(snapshot.actions) and np.array_equal(
            np.array(seen, np.float32).reshape(len(seen), 1 + s)[len(seen) - known :], remembered
        )
        if same:
            self.memory = snapshot.memory
        else:
            self._episode += 1
            self._begin_episode()
        return same


def _compile(config: Config, agent: Agent, env: Env, metric_names: list[str]) -> tuple[Any, Any, Any, Any]:
    """The agent's functions, with the episode's or the step's key derived inside: one dispatch each."""
    k_episode, k_act, k_update = (jax_key(config.seed, stream) for stream in ("episode", "act", "update"))

    def begin(episode: Array) -> Any:
        return agent.begin(jax.random.fold_in(k_episode, episode))

    def act(state: Any, memory: Any, obs: Array, step: Array) -> tuple[Array, Any]:
        action, memory = agent.explore(state, memory, obs[None], jax.random.fold_in(k_act, step))
        return action[0], memory

    def exploit(state: Any, obs: Array) -> Array:
        return agent.exploit(state, obs[None])[0]

    def update(state: Any, rows: Array, numbers: Array, step: Array) -> tuple[Any, Array]:
        """All updates of one step, in one dispatch; and their metrics, [updates, 2, metrics]."""
        count, key = config.spec.updates_per_step, jax.random.fold_in(k_update, step)

        def one(state: Any, given: tuple[Array, Array, Array]) -> tuple[Any, Array]:
            rows, numbers, key = given
            state, metrics = agent.update(state, unpack(rows, numbers, env.sizes), key)
            values, weights = zip(*(metrics[name] for name in metric_names), strict=True)
            return state, jnp.stack([jnp.stack(values), jnp.stack(weights)])

        if count == 1:
            state, metrics = one(state, (rows, numbers, key))
            return state, metrics[None]
        each = rows.reshape(count, -1, rows.shape[-1]), numbers.reshape(count, -1), jax.random.split(key, count)
        return jax.lax.scan(one, state, each)

    return jax.jit(begin), jax.jit(act), jax.jit(exploit), jax.jit(update, donate_argnums=0)


def _metric_names(agent: Agent, env: Env, batch_size: int) -> list[str]:
    key = jax.eval_shape(lambda: jax.random.key(0))
    rows = jax.ShapeDtypeStruct((batch_size, row_width(env.sizes)), jnp.float32)
    numbers = jax.ShapeDtypeStruct((batch_size,), jnp.uint32)
    batch = jax.eval_shape(lambda r, n: unpack(r, n, env.sizes), rows, numbers)
    _, metrics = jax.eval_shape(agent.update, jax.eval_shape(agent.init, key), batch, key)
    return list(metrics)
