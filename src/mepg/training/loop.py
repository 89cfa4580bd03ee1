"""One run of one agent, step by step. It only computes: whoever iterates over it prints, stores or stops."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mepg.algos import MultiStep
from mepg.core.types import Array, Batch
from mepg.envs.env import Env
from mepg.envs.spaces import Action, Observation, StepResult
from mepg.envs.vector import Envs
from mepg.errors import RunFailure, failures_at
from mepg.training.config import Config
from mepg.training.evaluate import Episode, play
from mepg.training.keys import Fractions, episode_seed, generator
from mepg.training.program import Program
from mepg.training.replay import Replay, Rows
from mepg.words import many

LOG_EVERY = 1_000  # steps between two rows of metrics
RECENT_EPISODES = 100  # over which the training episodes' mean return is taken, as in Stable-Baselines3


Evaluations = dict[int, list[Episode]]  # by step


class Record(NamedTuple):
    """What happened in one step; with several environments, in one of each."""

    step: int  # steps so far, in all environments together
    results: list[StepResult]
    episodes: list[Episode]  # training episodes that ended in this step
    metrics: dict[str, float] | None = None  # every LOG_EVERY steps
    evaluation: list[Episode] | None = None  # every `eval_every` steps, and after the last


class Snapshot(NamedTuple):
    """All that a run needs to go on exactly as if it had never stopped, besides the replay memory."""

    step: int
    state: Any  # the agent's
    memory: Any  # what the agent remembers of the episodes under way
    next_actions: Rows  # [E, A]
    episodes: list[int]  # the numbers of the episodes under way
    actions: list[Rows]  # those taken in them, [n, A]
    recent: list[Episode]
    evaluations: Evaluations
    sums: npt.NDArray[np.float64]  # of the metrics since they were last reported: weighted values, and weights


class Loop:
    """Algorithm 1's outer loop. Between two steps it can be saved (`snapshot`) and put back (`restore`).

    With E environments, one step in each is followed by E times the updates, so the number of updates for each
    transition stays the same. Without `eval_env` nothing is evaluated.
    """

    def __init__(
        self, config: Config, program: Program, envs: Envs, eval_env: Env | None, replay: Replay, note: str = ""
    ) -> None:
        self.config, self.envs, self.eval_env, self.replay = config, envs, eval_env, replay
        self.program = program
        self.note = note  # for the person who watches, about how it was put together
        self.metric_names = self.program.metric_names
        self.held = self.program.init()  # the agent's state, as the program holds it
        self.step = 0
        self.memory = self.program.nothing_yet()  # the agent's, of the episodes under way
        self.next_episode = 0  # the number of the next episode to begin
        self._episodes = [0] * envs.count  # the number of the current one, for each environment
        self.obs: Rows = np.zeros((envs.count, envs.sizes.obs), np.float32)
        # Actions of the current episodes, as bytes: an episode that never ends may have millions.
        self._taken = [bytearray() for _ in range(envs.count)]
        self._totals = [0.0] * envs.count
        spec = config.spec
        self._n_step, self._discount = (spec.n_step, spec.discount) if isinstance(spec, MultiStep) else (1, 1.0)
        self._rewards: list[deque[float]] = [deque(maxlen=self._n_step) for _ in range(envs.count)]  # the last ones
        self.recent: deque[Episode] = deque(maxlen=RECENT_EPISODES)  # of training
        batches = config.spec.updates_per_step * envs.count
        self._fractions = Fractions(config.seed, "replay", batches * config.spec.batch_size)
        self._pending: list[tuple[int, Array]] = []  # metrics that the device may still be working on
        self._sums = np.zeros((2, len(self.metric_names)))
        self.evaluations: Evaluations = {}
        self.seconds_evaluating = 0.0  # in this session
        self.processor_evaluating = 0.0  # the same in seconds of processor time
        self._finite_at = 0  # the last step at which all of the state is known to have been finite
        # Held while the agent's state or the replay memory changes, so that another thread may read them. Never held
        # while an environment steps: that may take long, and the environment may ask the policy itself.
        self.lock = threading.RLock()
        self.left = False  # True if others have used the environments: then the next step begins new episodes
        self.actions: Rows  # for the next step
        self._begin_anew()

    @property
    def state(self) -> Any:
        """The agent's; the next step writes over it."""
        return self.program.unflatten(self.held)

    @property
    def updates(self) -> int:
        """Critic updates so far."""
        random = int(self.config.spec.warmup) // self.envs.count * self.envs.count
        return max(0, self.step - random) * int(self.config.spec.updates_per_step)

    @property
    def pace(self) -> str:
        """How many updates a step has, in words: with several environments that is not obvious."""
        envs, updates = self.envs.count, int(self.config.spec.updates_per_step)
        return (
            f"{many(envs, 'environment')} at a time, {many(updates, 'gradient step')} for each step in an environment"
        )

    def __iter__(self) -> Iterator[Record]:
        while self.step < self.config.steps:
            yield self.advance()

    def advance(self) -> Record:
        """One step in each environment, and what is learned from it."""
        if self.left:
            self.left = False
            self.envs.abandon()
            self._begin_anew()
        number = self.step + self.envs.count
        try:
            return self._advance()
        except RunFailure as failure:
            raise RunFailure(f"step {number}: {failure}") from failure

    def _advance(self) -> Record:
        actions = self._finite_actions()
        results = self.envs.step(actions)
        with self.lock:
            for index, (action, result) in enumerate(zip(actions, results, strict=True)):
                self.replay.add(self.obs[index], action, result.reward, result.alive, result.obs)
                self._take(index, action, result)
                self._look_ahead(index, result)
        ended = [self._end_episode(index) for index, result in enumerate(results) if result.over]
        with self.lock:
            self.step += self.envs.count
            if self.step > self.config.spec.warmup:
                self._learn()
            else:
                self.actions = self._choose_actions()
        metrics = self.report() if self._reached(LOG_EVERY) else None
        due = self.eval_env is not None and self.config.evaluates_at(self.step)
        return Record(self.step, results, ended, metrics, self.evaluate() if due else None)

    def _take(self, index: int, action: Rows, result: StepResult) -> None:
        """One more step of the episode under way."""
        self.obs[index] = result.obs
        self._taken[index] += action.tobytes()
        self._totals[index] += result.reward
        self._rewards[index].append(result.reward)

    def _look_ahead(self, index: int, result: StepResult) -> None:
        """Let the transitions of the last n steps end where this one does.

        Each holds r_0 + ... + gamma^(k-1) r_(k-1), the state after these k steps, and gamma^(k-1) as `discount`, or 0
        at an end: so gamma discount Q(s', a') is what follows. At a time limit they stay as they are, with fewer steps.
        """
        for back in range(1, len(self._rewards[index])):
            number = self.replay.count - 1 - back * self.envs.count
            discount = self._discount**back * result.alive
            self.replay.extend(number, self._sum_of_rewards(index, back), discount, result.obs)

    def _sum_of_rewards(self, index: int, back: int) -> float:
        """The discounted sum from `back` steps ago up to the last one."""
        rewards = list(self._rewards[index])[-1 - back :]
        return sum(self._discount**k * reward for k, reward in enumerate(rewards))

    def _reached(self, period: int) -> bool:
        """Whether this step, or one that was taken together with it, is a multiple of `period`."""
        return self.step % period < self.envs.count

    def _learn(self) -> None:
        """Algorithm 1's updates, and with them the next actions: one call instead of two."""
        batch = self.program.sample(self.replay, self._fractions(self.step // self.envs.count))
        self.held, metrics, (self.actions, self.memory) = self.program.learn(
            self.held, *batch, self.memory, self.obs, self.step
        )
        self._pending.append((self.step, metrics))

    def _choose_actions(self) -> Rows:
        first, count = self.step + 1, self.envs.count
        if first <= self.config.spec.warmup:
            chances = [generator(self.config.seed, "warmup", step) for step in range(first, first + count)]
            return np.array([self.envs.spaces.actions.random(rng) for rng in chances], np.float32)
        actions, self.memory = self.program.explore(self.held, self.memory, self.obs, first)
        return actions

    def _finite_actions(self) -> Rows:
        """The actions for the next step; a RunFailure if they are not finite."""
        bad = ~np.isfinite(self.actions).all(axis=1)
        if bad.any():
            self.settle()  # says which quantity went wrong first, if one did
            raise RunFailure(f"the policy's action became {self.actions[bad][0]}")
        return self.actions

    def _begin_anew(self) -> None:
        with failures_at(f"step {self.step}"):
            for index in range(self.envs.count):
                self._begin_episode(index)
        self.actions = self._choose_actions()

    def _begin_episode(self, index: int, number: int | None = None) -> None:
        """Begin the next episode, or again the one with this number."""
        self._episodes[index] = self.next_episode if number is None else number
        self.next_episode = max(self.next_episode, self._episodes[index] + 1)
        self.obs[index] = self.envs.begin(index, episode_seed(self.config.seed, "train", self._episodes[index]))
        self.memory = self.program.begin(self.memory, index, self._episodes[index])
        self._taken[index] = bytearray()
        self._totals[index] = 0.0
        self._rewards[index].clear()

    def _end_episode(self, index: int) -> Episode:
        ended = Episode(self._totals[index], len(self._taken_at(index)))
        self.recent.append(ended)
        self._begin_episode(index)
        return ended

    def _taken_at(self, index: int) -> Rows:
        """The actions of the episode under way. [n, A]"""
        return np.frombuffer(bytes(self._taken[index]), np.float32).reshape(-1, self.envs.sizes.action_width)

    def evaluate(self) -> list[Episode]:
        """The paper's evaluation, on an environment of its own."""
        assert self.eval_env is not None
        self.settle()  # a policy that is no longer finite is not worth playing
        began, processor = time.monotonic(), time.process_time()
        seeds = [episode_seed(self.config.seed, "eval", self.step, i) for i in range(self.config.eval_episodes)]
        episodes = [play(self.exploit, self.eval_env, seed) for seed in seeds]
        self.evaluations[self.step] = episodes
        self.seconds_evaluating += time.monotonic() - began
        self.processor_evaluating += time.process_time() - processor
        return episodes

    def exploit(self, obs: Observation) -> Action:
        """The action without exploration."""
        action: Action = self.program.exploit(self.held, obs[None])[0]
        return action

    def report(self) -> dict[str, float]:
        """The metrics' means since the last report."""
        with self.lock:
            return self._report()

    def _report(self) -> dict[str, float]:
        self.settle()
        report: dict[str, float] = {}
        if self.recent:
            report["rollout/ep_rew_mean"] = float(np.mean([e.total for e in self.recent]))
            report["rollout/ep_len_mean"] = float(np.mean([e.length for e in self.recent]))
        report["train/n_updates"] = self.updates
        for name, total, weight in zip(self.metric_names, *self._sums, strict=True):
            if weight:
                report[f"train/{name}"] = float(total / weight)
        self._sums[:] = 0
        return report

    def settle(self) -> None:
        """Wait for the updates so far, and name the first number that is no longer finite."""
        with self.lock:
            self._settle()

    def _settle(self) -> None:
        # Metrics are added up one by one: the order must not depend on when.
        updates = ((step, update) for step, several in self._pending for update in np.asarray(several, np.float64))
        for step, (values, weights) in updates:
            if not np.isfinite(values).all():
                index = int(np.flatnonzero(~np.isfinite(values))[0])
                raise RunFailure(f"{self.metric_names[index]} became {values[index]} in the update of step {step}")
            self._sums += values * weights, weights
        self._pending.clear()
        # A state can go wrong and leave the metrics as they are: Adam's moments, which then stand still, or a variance.
        if bad := self.program.not_finite(self.held):
            since = f"between steps {self._finite_at} and {self.step}"
            raise RunFailure(f"{bad} became infinite or NaN {since}: are observations or rewards too large?")
        self._finite_at = self.step

    def replace_rows(self, rows: Rows) -> None:
        """Other transitions in the place of the replay memory's: they are not of the episodes under way."""
        self.replay.restore(0, rows)
        for rewards in self._rewards:
            rewards.clear()

    def snapshot(self) -> Snapshot:
        with failures_at(f"step {self.step}"):
            self.settle()
            actions = self._finite_actions()
        return Snapshot(
            self.step,
            self.state,
            self.memory,
            actions,
            list(self._episodes),
            [self._taken_at(index) for index in range(self.envs.count)],
            list(self.recent),
            dict(self.evaluations),
            self._sums.copy(),
        )

    def restore(self, snapshot: Snapshot) -> bool:
        """Go back to a snapshot; the replay memory must already be there.

        The episodes that were under way are rebuilt by taking their actions again. False if that did not
        give the observations that the replay memory holds: then the environment is not reproducible,
        and new episodes have been begun.
        """
        self.step, self._finite_at, self.next_episode = snapshot.step, snapshot.step, max(snapshot.episodes) + 1
        self.held = self.program.flatten(snapshot.state)
        self.recent = deque(snapshot.recent, maxlen=RECENT_EPISODES)
        self.evaluations, self._sums = dict(snapshot.evaluations), snapshot.sums.copy()
        self._pending.clear()
        with failures_at(f"while resuming at step {self.step}"):
            same = self._rebuild(snapshot)
        if same:
            self.memory, self.actions = snapshot.memory, snapshot.next_actions
        else:
            self._begin_anew()
        return same

    def restart(self, state: Any, step: int, next_episode: int) -> None:
        """Go on with an agent's state, but with new episodes."""
        self.step, self._finite_at, self.next_episode = step, step, next_episode
        self.held = self.program.flatten(state)
        self._begin_anew()

    def _rebuild(self, snapshot: Snapshot) -> bool:
        """Begin the snapshot's episodes again, and repeat their actions, so that all reach their last one together."""
        lengths = [len(actions) for actions in snapshot.actions]
        longest, same = max(lengths), True
        for index in range(self.envs.count):
            self._begin_episode(index, snapshot.episodes[index])
        for to_go in range(longest, 0, -1):
            for index in range(self.envs.count):
                if lengths[index] == to_go != longest:  # so far it was only stepped along with the others
                    self._begin_episode(index, snapshot.episodes[index])
            begun = [length >= to_go for length in lengths]
            idle = np.zeros(self.envs.sizes.action_width, np.float32)
            actions = [taken[-to_go] if here else idle for taken, here in zip(snapshot.actions, begun, strict=True)]
            for index, result in enumerate(self.envs.step(np.array(actions))):
                if begun[index]:
                    self._take(index, actions[index], result)
                    same &= not result.over and self._remembers(index, to_go, result)
                if result.over:
                    self._begin_episode(index, snapshot.episodes[index])
        for index, length in enumerate(lengths):
            if length == 0 != longest:
                self._begin_episode(index, snapshot.episodes[index])
        return same

    def _remembers(self, index: int, to_go: int, result: StepResult) -> bool:
        """Whether the replay memory holds this result. True as far as it no longer reaches back.

        The next transition begins with it, if there is one; those that look n steps ahead, or as far as there is
        anything to see, end with it.
        """
        number = self.replay.count - to_go * self.envs.count + index
        steps_ago = range(0 if to_go == 1 else self._n_step - 1, len(self._rewards[index]))
        there = [number - ago * self.envs.count for ago in steps_ago]
        same = all(
            row.reward[0] == np.float32(self._sum_of_rewards(index, ago))
            and np.array_equal(row.next_obs[0], result.obs)
            for ago, row in zip(steps_ago, map(self._row, there), strict=True)
            if row is not None
        )
        following = None if to_go == 1 else self._row(number + self.envs.count)
        return same and (following is None or np.array_equal(following.obs[0], result.obs))

    def _row(self, number: int) -> Batch | None:
        return self.replay.transition(number) if number >= self.replay.oldest else None
