"""One run of one agent, step by step. It only computes: printing, storing and stopping are left to the caller."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mepg.algos import n_step_and_discount
from mepg.core.types import Array, Batch
from mepg.envs.env import Env
from mepg.envs.spaces import Action, Observation, StepResult
from mepg.envs.vector import Envs
from mepg.errors import RunFailure, failures_at
from mepg.training.config import Config
from mepg.training.evaluate import Episode, play
from mepg.training.keys import UniformStream, episode_seed, generator
from mepg.training.program import Program
from mepg.training.replay import FloatArray, Replay
from mepg.words import many

LOG_EVERY = 1_000  # steps between two rows of metrics
RECENT_EPISODES = 100  # over which the training episodes' mean return is taken, as in Stable-Baselines3


Evaluations = dict[int, list[Episode]]  # by step


class Record(NamedTuple):
    """What one step gave; with several environments, one step in each."""

    step: int  # steps so far, in all environments together
    results: list[StepResult]
    episodes: list[Episode]  # training episodes that ended in this step
    metrics: dict[str, float] | None = None  # every LOG_EVERY steps
    evaluation: list[Episode] | None = None  # every `eval_every` steps, and after the last


class Snapshot(NamedTuple):
    """All that a run needs to continue exactly as if it had never stopped, besides the replay buffer."""

    step: int
    state: Any  # the agent's
    carry: Any  # the agent's, in the episodes under way
    next_actions: FloatArray  # [E, A]
    episode_numbers: list[int]  # of the episodes under way
    episode_actions: list[FloatArray]  # those taken in them, [n, A]
    recent_episodes: list[Episode]
    evaluations: Evaluations
    metric_sums: npt.NDArray[np.float64]  # since metrics were last reported: weighted values, and weights


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
        self.note = note  # for the user: why XLA computes, if native code was expected
        self.metric_names = self.program.metric_names
        self.device_state = self.program.init()  # the agent's state
        self.step = 0
        self.carry = self.program.empty_carry()  # the agent's, in the episodes under way
        self.next_episode = 0  # the number of the next episode to begin
        self._episode_numbers = [0] * envs.count  # the number of the episode under way in each environment
        self.obs: FloatArray = np.zeros((envs.count, envs.sizes.obs_width), np.float32)
        # Actions of the episodes under way, as bytes: an episode that never ends may have millions.
        self._episode_actions = [bytearray() for _ in range(envs.count)]
        self._episode_returns = [0.0] * envs.count
        self._n_step, self._discount = n_step_and_discount(config.spec)
        self._rewards: list[deque[float]] = [deque(maxlen=self._n_step) for _ in range(envs.count)]  # the last ones
        self.recent_episodes: deque[Episode] = deque(maxlen=RECENT_EPISODES)  # of training
        batches = config.spec.updates_per_step * envs.count
        self._fractions = UniformStream(config.seed, "replay", batches * config.spec.batch_size)
        self._pending: list[tuple[int, Array]] = []  # metrics that the device may still be working on
        self._metric_sums = np.zeros((2, len(self.metric_names)))
        self.evaluations: Evaluations = {}
        self.seconds_evaluating = 0.0  # in this session
        self.processor_seconds_evaluating = 0.0  # the same, of processor time
        self._finite_at = 0  # the last step at which all of the state is known to have been finite
        # Taken while the agent's state or the replay buffer changes, so that another thread may read them. Not taken
        # while an environment steps: that may take long, and the environment may call the policy itself.
        self.lock = threading.RLock()
        self.between_steps = True  # False after an error in the middle of a step: there is nothing whole to save
        self.envs_disturbed = False  # True: others have used the environments, and the next step begins new episodes
        self.next_actions: FloatArray  # for the next step
        self._begin_all()

    @property
    def state(self) -> Any:
        """The agent's state; the next step overwrites it."""
        return self.program.unflatten(self.device_state)

    @property
    def updates(self) -> int:
        """Critic updates so far."""
        warmup = int(self.config.spec.warmup) // self.envs.count * self.envs.count
        return max(0, self.step - warmup) * int(self.config.spec.updates_per_step)

    @property
    def pace(self) -> str:
        """Environments and gradient steps, in words: with several environments their ratio is not obvious."""
        envs, updates = self.envs.count, int(self.config.spec.updates_per_step)
        return (
            f"{many(envs, 'environment')} at a time, {many(updates, 'gradient step')} for each step in an environment"
        )

    def __iter__(self) -> Iterator[Record]:
        while self.step < self.config.steps:
            yield self.advance()

    def advance(self) -> Record:
        """One step in each environment, and what is learned from it."""
        if self.envs_disturbed:
            self.envs_disturbed = False
            self.envs.abandon()
            self._begin_all()
        with failures_at(f"step {self.step + self.envs.count}"):
            actions = self._finite_actions()
            results = self.envs.step(actions)
            self.between_steps = False
            with self.lock:
                for index, (action, result) in enumerate(zip(actions, results, strict=True)):
                    self.replay.add(self.obs[index], action, result.reward, float(not result.terminated), result.obs)
                    self._record_step(index, action, result)
                    self._extend_n_step(index, result)
            ended = [self._end_episode(index) for index, result in enumerate(results) if result.done]
            with self.lock:
                self.step += self.envs.count
                if self.step > self.config.spec.warmup:
                    self._learn()
                else:
                    self.next_actions = self._choose_actions()
            metrics = self.report() if self._is_due(LOG_EVERY) else None
            due = self.eval_env is not None and self.config.evaluates_at(self.step)
            record = Record(self.step, results, ended, metrics, self.evaluate() if due else None)
            self.between_steps = True
            return record

    def _record_step(self, index: int, action: FloatArray, result: StepResult) -> None:
        """Record one step of the episode under way."""
        self.obs[index] = result.obs
        self._episode_actions[index] += action.tobytes()
        self._episode_returns[index] += result.reward
        self._rewards[index].append(result.reward)

    def _extend_n_step(self, index: int, result: StepResult) -> None:
        """Extend the transitions of the last n steps to the state after this one: n-step returns.

        Each holds r_0 + ... + gamma^(k-1) r_(k-1), the state after these k steps, and gamma^(k-1) as `discount`, or 0
        at a terminal state: the target is the sum plus gamma discount Q(s', a'). At a time limit they keep fewer steps.
        """
        for back in range(1, len(self._rewards[index])):
            number = self.replay.count - 1 - back * self.envs.count
            discount = self._discount**back * (not result.terminated)
            self.replay.set_n_step(number, self._sum_of_rewards(index, back), discount, result.obs)

    def _sum_of_rewards(self, index: int, back: int) -> float:
        """The discounted sum from `back` steps ago up to the last one."""
        rewards = list(self._rewards[index])[-1 - back :]
        return sum(self._discount**k * reward for k, reward in enumerate(rewards))

    def _is_due(self, period: int) -> bool:
        """Whether this step, or one that was taken together with it, is a multiple of `period`."""
        return self.step % period < self.envs.count

    def _learn(self) -> None:
        """Algorithm 1's updates and the next actions, in one call."""
        batch = self.program.sample(self.replay, self._fractions(self.step // self.envs.count))
        self.device_state, metrics, (self.next_actions, self.carry) = self.program.learn(
            self.device_state, *batch, self.carry, self.obs, self.step
        )
        self._pending.append((self.step, metrics))

    def _choose_actions(self) -> FloatArray:
        first, count = self.step + 1, self.envs.count
        if first <= self.config.spec.warmup:
            generators = [generator(self.config.seed, "warmup", step) for step in range(first, first + count)]
            draws = (self.envs.spaces.random(*each) for each in zip(generators, self.obs, strict=True))
            return np.array(list(draws), np.float32)
        actions, self.carry = self.program.explore(self.device_state, self.carry, self.obs, first)
        return actions

    def _finite_actions(self) -> FloatArray:
        """The actions for the next step; a RunFailure if they are not finite."""
        bad = ~np.isfinite(self.next_actions).all(axis=1)
        if bad.any():
            self.check_finite()  # its message names the metric or array that went wrong first
            raise RunFailure(f"the policy's action became {self.next_actions[bad][0]}")
        return self.next_actions

    def _begin_all(self) -> None:
        with failures_at(f"step {self.step}"):
            for index in range(self.envs.count):
                self._begin_episode(index)
        self.next_actions = self._choose_actions()

    def _begin_episode(self, index: int, number: int | None = None) -> None:
        """Begin the next episode, or again the one with this number."""
        self._episode_numbers[index] = self.next_episode if number is None else number
        self.next_episode = max(self.next_episode, self._episode_numbers[index] + 1)
        self.obs[index] = self.envs.begin(index, episode_seed(self.config.seed, "train", self._episode_numbers[index]))
        self.carry = self.program.begin(self.carry, index, self._episode_numbers[index])
        self._episode_actions[index] = bytearray()
        self._episode_returns[index] = 0.0
        self._rewards[index].clear()

    def _end_episode(self, index: int) -> Episode:
        ended = Episode(self._episode_returns[index], len(self._actions_of(index)))
        self.recent_episodes.append(ended)
        self._begin_episode(index)
        return ended

    def _actions_of(self, index: int) -> FloatArray:
        """The actions of the episode under way. [n, A]"""
        return np.frombuffer(bytes(self._episode_actions[index]), np.float32).reshape(-1, self.envs.sizes.action_width)

    def evaluate(self) -> list[Episode]:
        """The paper's evaluation, on an environment of its own."""
        assert self.eval_env is not None
        self.check_finite()  # a policy that is no longer finite is not worth playing
        began, processor_began = time.monotonic(), time.process_time()
        seeds = [episode_seed(self.config.seed, "eval", self.step, i) for i in range(self.config.eval_episodes)]
        episodes = [play(self.exploit, self.eval_env, seed) for seed in seeds]
        self.evaluations[self.step] = episodes
        self.seconds_evaluating += time.monotonic() - began
        self.processor_seconds_evaluating += time.process_time() - processor_began
        return episodes

    def exploit(self, obs: Observation) -> Action:
        """The action without exploration."""
        action: Action = self.program.exploit(self.device_state, obs[None])[0]
        return action

    def report(self) -> dict[str, float]:
        """The metrics' means since the last report."""
        with self.lock:
            self.check_finite()
            report: dict[str, float] = {}
            if self.recent_episodes:
                report["rollout/ep_rew_mean"] = float(np.mean([e.return_ for e in self.recent_episodes]))
                report["rollout/ep_len_mean"] = float(np.mean([e.length for e in self.recent_episodes]))
            report["train/n_updates"] = self.updates
            for name, total, weight in zip(self.metric_names, *self._metric_sums, strict=True):
                if weight:
                    report[f"train/{name}"] = float(total / weight)
            self._metric_sums[:] = 0
            return report

    def check_finite(self) -> None:
        """Wait for the updates so far; a RunFailure names the first metric or array that is not finite."""
        with self.lock:
            # Metrics are added up one update at a time, in order: the sum must not depend on when this is called.
            updates = ((step, update) for step, metrics in self._pending for update in np.asarray(metrics, np.float64))
            for step, (values, weights) in updates:
                if not np.isfinite(values).all():
                    index = int(np.flatnonzero(~np.isfinite(values))[0])
                    raise RunFailure(f"{self.metric_names[index]} became {values[index]} in the update of step {step}")
                self._metric_sums += values * weights, weights
            self._pending.clear()
            # A state can be infinite while all metrics are finite: in Adam's moments, or in a variance.
            if name := self.program.first_nonfinite(self.device_state):
                since = f"between steps {self._finite_at} and {self.step}"
                raise RunFailure(f"{name} became infinite or NaN {since}: are observations or rewards too large?")
            self._finite_at = self.step

    def replace_rows(self, rows: FloatArray) -> None:
        """Put other transitions into the replay buffer: none of them belongs to the episodes under way."""
        self.replay.restore(0, rows)
        for rewards in self._rewards:
            rewards.clear()

    def snapshot(self) -> Snapshot:
        with failures_at(f"step {self.step}"):
            self.check_finite()
            actions = self._finite_actions()
        return Snapshot(
            self.step,
            self.state,
            self.carry,
            actions,
            list(self._episode_numbers),
            [self._actions_of(index) for index in range(self.envs.count)],
            list(self.recent_episodes),
            dict(self.evaluations),
            self._metric_sums.copy(),
        )

    def restore(self, snapshot: Snapshot) -> bool:
        """Go back to a snapshot; the replay buffer must already be there.

        The episodes under way are rebuilt by repeating their actions. Returns False if that did not give the
        observations in the replay buffer: then the environment is not reproducible, and new episodes have begun.
        """
        self.step, self._finite_at, self.next_episode = snapshot.step, snapshot.step, max(snapshot.episode_numbers) + 1
        self.device_state = self.program.flatten(snapshot.state)
        self.recent_episodes = deque(snapshot.recent_episodes, maxlen=RECENT_EPISODES)
        self.evaluations, self._metric_sums = dict(snapshot.evaluations), snapshot.metric_sums.copy()
        self._pending.clear()
        with failures_at(f"while resuming at step {self.step}"):
            same = self._rebuild(snapshot)
        if same:
            self.carry, self.next_actions = snapshot.carry, snapshot.next_actions
        else:
            self._begin_all()
        return same

    def restart(self, state: Any, step: int, next_episode: int) -> None:
        """Continue with this state of the agent, in new episodes."""
        self.step, self._finite_at, self.next_episode = step, step, next_episode
        self.device_state = self.program.flatten(state)
        self._begin_all()

    def _rebuild(self, snapshot: Snapshot) -> bool:
        """Begin the snapshot's episodes again, and repeat their actions so that all reach their last together."""
        lengths = [len(actions) for actions in snapshot.episode_actions]
        longest, same = max(lengths), True
        for index in range(self.envs.count):
            self._begin_episode(index, snapshot.episode_numbers[index])
        for remaining in range(longest, 0, -1):
            for index in range(self.envs.count):
                if remaining == lengths[index] < longest:  # until now it took idle steps along with the others
                    self._begin_episode(index, snapshot.episode_numbers[index])
            started = [length >= remaining for length in lengths]
            idle_actions = map(self.envs.spaces.any_action, self.obs)
            actions = [
                past[-remaining] if begun else idle
                for past, begun, idle in zip(snapshot.episode_actions, started, idle_actions, strict=True)
            ]
            for index, result in enumerate(self.envs.step(np.array(actions))):
                self.obs[index] = result.obs
                if started[index]:
                    self._record_step(index, actions[index], result)
                    same &= not result.done and self._is_in_replay(index, remaining, result)
                if result.done:
                    self._begin_episode(index, snapshot.episode_numbers[index])
        for index, length in enumerate(lengths):
            if length == 0 and longest > 0:
                self._begin_episode(index, snapshot.episode_numbers[index])
        return same

    def _is_in_replay(self, index: int, remaining: int, result: StepResult) -> bool:
        """Whether the replay buffer holds this result; True if it no longer reaches that far back.

        The next transition begins with it, if there is one. Transitions of the last n steps, or of fewer at the end,
        end with it.
        """
        number = self.replay.count - remaining * self.envs.count + index
        steps_ago = range(0 if remaining == 1 else self._n_step - 1, len(self._rewards[index]))
        earlier = [self._transition(number - ago * self.envs.count) for ago in steps_ago]
        same = all(
            transition.reward[0] == np.float32(self._sum_of_rewards(index, ago))
            and np.array_equal(transition.next_obs[0], result.obs)
            for ago, transition in zip(steps_ago, earlier, strict=True)
            if transition is not None
        )
        following = None if remaining == 1 else self._transition(number + self.envs.count)
        return same and (following is None or np.array_equal(following.obs[0], result.obs))

    def _transition(self, number: int) -> Batch | None:
        return self.replay.transition(number) if number >= self.replay.oldest else None
