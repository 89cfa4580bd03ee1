"""One run of one agent, step by step: it computes and yields; whoever iterates prints, stores or stops."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mepg.core.types import Agent, Array
from mepg.errors import RunFailure
from mepg.run.config import Config
from mepg.run.envs import Env, Vector
from mepg.run.evaluate import Episode, evaluate
from mepg.run.keys import Fractions, episode_seed, generator
from mepg.run.program import Program
from mepg.run.replay import Replay

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
    action: Vector  # the next one
    episode: int  # the number of the episode under way
    actions: npt.NDArray[np.float32]  # those taken in it, [n, A]
    recent: list[Episode]
    evaluations: Evaluations
    sums: npt.NDArray[np.float64]  # of the metrics since they were last reported: weighted values, and weights


class Loop:
    """Algorithm 1's outer loop. Between two steps it can be saved (`snapshot`) and put back (`restore`)."""

    def __init__(self, config: Config, agent: Agent, env: Env, eval_env: Env, replay: Replay) -> None:
        self.config, self.env, self.eval_env, self.replay = config, env, eval_env, replay
        self._program = Program(config, agent, env.sizes)
        self.metric_names = self._program.metric_names
        self._leaves = self._program.init()  # the agent's state
        self.step = 0
        self.memory: Any  # the agent's, of the episode under way
        self._episode = 0
        self._obs: Vector
        self._actions: list[Vector]
        self._total: float
        self._recent: deque[Episode] = deque(maxlen=RECENT_EPISODES)
        self._fractions = Fractions(config.seed, "replay", config.spec.updates_per_step * config.spec.batch_size)
        self._pending: list[tuple[int, Array]] = []  # metrics that the device may still be working on
        self._sums = np.zeros((2, len(self.metric_names)))
        self.evaluations: Evaluations = {}
        self.seconds_evaluating = 0.0  # in this session
        self._begin_episode()
        self._action = self._choose_action()  # the next one

    @property
    def state(self) -> Any:
        """The agent's; the next step writes over it."""
        return self._program.unflatten(self._leaves)

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
        action = self._action
        if not np.isfinite(action).all():
            self._drain()  # says which quantity went wrong first, if one did
            raise RunFailure(f"the policy's action became {action}")
        outcome = self.env.step(action)
        self.replay.add(self._obs, action, outcome.reward, outcome.alive, outcome.obs)
        self._obs = outcome.obs
        self._actions.append(action)
        self._total += outcome.reward
        episode = self._end_episode() if outcome.over else None
        if self.step > spec.warmup:
            self._learn()
        else:
            self._action = self._choose_action()

        metrics = self._report_metrics() if self.step % LOG_EVERY == 0 else None
        due = self.step % config.eval_every == 0 or self.step == config.steps
        return Record(self.step, episode, metrics, self._evaluate() if due else None)

    def _learn(self) -> None:
        """Algorithm 1's updates, and with them the next action: one call instead of two."""
        batch = self.replay.sample(self._fractions(self.step))
        self._leaves, metrics, (self._action, self.memory) = self._program.learn(
            self._leaves, *batch, self.memory, self._obs, self.step
        )
        self._pending.append((self.step, metrics))

    def _choose_action(self) -> Vector:
        step = self.step + 1
        if step <= self.config.spec.warmup:
            rng = generator(self.config.seed, "warmup", step)
            return rng.uniform(-1, 1, self.env.sizes.action).astype(np.float32)
        action, self.memory = self._program.explore(self._leaves, self.memory, self._obs, step)
        return action

    def _begin_episode(self) -> None:
        self._obs = self.env.reset(episode_seed(self.config.seed, "train", self._episode))
        self.memory = self._program.begin(self._episode)
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
        action: Vector = self._program.exploit(self._leaves, obs[None])[0]
        return action

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
        return Snapshot(
            self.step, self.state, self.memory, self._action, self._episode, actions, recent, evaluations, sums
        )

    def restore(self, snapshot: Snapshot) -> bool:
        """Go back to a snapshot; the replay memory must already be there.

        The episode that was under way is rebuilt by taking its actions again. False if that did not
        give the observations that the replay memory holds: then the environment is not reproducible,
        and a new episode has been begun.
        """
        self.step, self._episode = snapshot.step, snapshot.episode
        self._leaves = self._program.flatten(snapshot.state)
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
            self.memory, self._action = snapshot.memory, snapshot.action
        else:
            self._episode += 1
            self._begin_episode()
            self._action = self._choose_action()
        return same
