"""Data that a run begins with: transitions from elsewhere, and how they become rows of its replay buffer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mepg.envs.legal import as_legal
from mepg.envs.observations import Misfit
from mepg.envs.spaces import FLOAT32_MAX, Observation, Spaces
from mepg.errors import UsageError
from mepg.training.replay import FloatArray, layout, pack, row_width

Columns = Mapping[str, npt.NDArray[Any]]  # arrays by name, with an entry for each transition


class Recording(NamedTuple):
    """Transitions as an environment gave them, one step each, in its own bounds.

    `observations` and `next_observations`, or in an environment with a Dict `observations.NAME` and so on for each
    entry; `actions`, `rewards`, `terminations`, and `truncations` or nothing. Where an environment says which actions
    are legal, `action_masks` and `next_action_masks` too. An episode ends where `terminations` or `truncations` says
    so, and where the next transition does not begin with the observation that this one ended with.
    """

    name: str  # where it comes from, for messages
    columns: Columns

    @property
    def sha256(self) -> str:
        return digest_arrays(self.columns)

    def to_rows(self, spaces: Spaces, n_step: int, discount: float) -> FloatArray:
        """As rows of the replay buffer, with returns of n steps. A UsageError says what does not fit."""
        rewards = self._scalar_column("rewards")
        terminated = self._flags("terminations", len(rewards))
        truncated = self._flags("truncations", len(rewards)) if "truncations" in self.columns else terminated
        obs, next_obs = (self._rows_of(name, spaces, len(rewards)) for name in ("observations", "next_observations"))
        if spaces.sizes.n_legal:
            legal = self._legal_actions("action_masks", spaces, np.full(len(rewards), True))
            next_legal = self._legal_actions("next_action_masks", spaces, ~terminated)
            obs, next_obs = np.hstack([obs, legal]), np.hstack([next_obs, next_legal])
        same_episode = ~terminated[:-1] & ~truncated[:-1] & (next_obs[:-1] == obs[1:]).all(axis=1)
        total, factor, last = sum_rewards(rewards, np.append(same_episode, False), n_step, discount)
        rows = np.zeros((len(rewards), row_width(spaces.sizes)), np.float32)
        actions, discounts = self._actions(spaces, len(rewards)), factor * ~terminated[last]
        pack(rows.T, layout(spaces.sizes), obs.T, actions.T, total, discounts, next_obs[last].T)
        return rows

    def _column(self, name: str) -> npt.NDArray[Any]:
        if name not in self.columns:
            known = ", ".join(sorted(self.columns)) or "nothing"
            raise UsageError(f"{self.name} has no {name}, but {known}")
        return self.columns[name]

    def _scalar_column(self, name: str, count: int | None = None) -> npt.NDArray[np.float64]:
        """Single numbers, which float32 can hold."""
        numbers = self._column(name).astype(np.float64)
        if numbers.ndim != 1 or (count is not None and len(numbers) != count):
            shape = "(n,)" if count is None else f"({count},), as rewards have"
            raise UsageError(f"{self.name}: {name} has shape {numbers.shape}, not {shape}")
        if not len(numbers):
            raise UsageError(f"{self.name} is empty: there is no transition in it")
        self._require_finite(np.where(np.abs(numbers) <= FLOAT32_MAX, numbers, np.nan), name, numbers)
        return numbers

    def _flags(self, name: str, count: int) -> npt.NDArray[np.bool_]:
        numbers = self._scalar_column(name, count)
        if not np.isin(numbers, (0, 1)).all():
            raise UsageError(f"{self.name}: {name} holds {numbers[~np.isin(numbers, (0, 1))][0]}, not 0 or 1")
        return numbers.astype(np.bool_)

    def _rows_of(self, name: str, spaces: Spaces, count: int) -> Observation:
        """Observations, flattened as the environment's are; entries that it does not have are left out."""
        rows = np.zeros((count, spaces.sizes.obs), np.float32)
        for leaf in spaces.observations.leaves:
            column = f"{name}.{leaf.name}" if leaf.path else name
            numbers = self._column(column)
            try:
                with np.errstate(over="ignore"):
                    rows[:, leaf.start : leaf.end] = leaf.encode(numbers, (count,))
            except Misfit as misfit:
                raise UsageError(
                    f"{self.name} does not fit {spaces.id}, with observations {spaces.observations}: its {column} have "
                    f"{misfit}"
                ) from None
            self._require_finite(rows[:, leaf.start : leaf.end], column, numbers)
        return rows

    def _legal_actions(self, name: str, spaces: Spaces, needs_action: npt.NDArray[np.bool_]) -> FloatArray:
        """1 or 0 for each action in each state; `needs_action`: where one is chosen, so that some must be legal."""
        try:
            legal = as_legal(self._column(name), (len(needs_action), spaces.actions.size), name)
        except Misfit as misfit:
            raise UsageError(f"{self.name} does not fit {spaces.id}: it has {misfit}") from None
        if not legal[needs_action].any(axis=1).all():
            raise UsageError(f"{self.name}: {name} allow no action in a state that is not terminal; leave that one out")
        return np.where(needs_action[:, None], legal, np.float32(1))

    def _actions(self, spaces: Spaces, count: int) -> FloatArray:
        actions = self._column("actions")
        shape = (count, *spaces.actions.shape)
        if actions.shape != shape:
            raise UsageError(
                f"{self.name} does not fit {spaces.id}: its actions have shape {actions.shape}, not {shape}"
            )
        self._require_finite(actions, "actions", actions)
        try:
            return spaces.read_actions(actions)[0]
        except UsageError as error:
            raise UsageError(f"{self.name} does not fit {spaces.id}: {error}; clip or convert its actions") from None

    def _require_finite(self, numbers: npt.NDArray[Any], name: str, raw: npt.NDArray[Any]) -> None:
        """Refuse transitions with NaN; `raw`: the numbers as they are in the file."""
        if not np.isfinite(numbers).all():
            row = int(np.argwhere(~np.isfinite(numbers))[0][0])
            bad = raw[row][~(np.abs(raw[row].astype(np.float64)) <= FLOAT32_MAX)] if raw.ndim > 1 else raw[row]
            raise UsageError(
                f"{self.name}: {name} holds {np.ravel(bad)[0]} in transition {row}; leave out what is not finite"
            )


class StoredReplay(NamedTuple):
    """What another run's replay buffer holds: rows for these spaces, with returns of its n steps."""

    name: str
    rows: FloatArray
    spaces: Spaces
    n_step: int
    discount: float

    @property
    def sha256(self) -> str:
        return digest_arrays({"rows": self.rows})

    def to_rows(self, spaces: Spaces, n_step: int, discount: float) -> FloatArray:
        """The rows, if they mean the same in a run with these spaces. Else a UsageError."""
        if difference := self.spaces.difference(spaces):
            raise UsageError(f"{self.name} does not fit: it has {difference}")
        if self.n_step != n_step or (n_step > 1 and self.discount != discount):
            raise UsageError(
                f"{self.name} holds returns of n_step={self.n_step} with discount={self.discount:g}, and this run has "
                f"n_step={n_step} with discount={discount:g}: give both runs the same"
            )
        if not len(self.rows):
            raise UsageError(f"{self.name} is empty: there is no transition in it")
        if not np.isfinite(self.rows).all():
            raise UsageError(f"{self.name} has a replay buffer with numbers that are not finite")
        return self.rows


Data = Recording | StoredReplay


def digest_arrays(columns: Columns) -> str:
    """The SHA-256 of arrays with their names, types and shapes."""
    sha256 = hashlib.sha256()
    for name in sorted(columns):
        array = np.ascontiguousarray(columns[name])
        sha256.update(f"{name} {array.dtype.str} {columns[name].shape}\n".encode())
        sha256.update(array.data)
    return sha256.hexdigest()


def sum_rewards(
    rewards: npt.NDArray[np.float64], same_episode: npt.NDArray[np.bool_], n_step: int, discount: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """r_0 + ... + gamma^(k-1) r_(k-1), gamma^(k-1) and the index of the last of the k steps, for every transition.

    k is `n_step`, or fewer up to the end of an episode: as the loop does it.

    :param same_episode: whether the next transition belongs to the same episode
    """
    total, factor, last = rewards.copy(), np.ones(len(rewards)), np.arange(len(rewards))
    reaching = np.full(len(rewards), True)
    for k in range(1, n_step):
        reaching &= same_episode[last]
        last[reaching] += 1
        total[reaching] += discount**k * rewards[last[reaching]]
        factor[reaching] = discount**k
    return total, factor, last
