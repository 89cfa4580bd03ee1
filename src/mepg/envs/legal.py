"""Which actions are legal: what an environment says by sb3-contrib's `action_masks()` or in `info["action_mask"]`.

In a row, 1 or 0 for each action stands behind the numbers of the observation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mepg.envs.observations import Misfit, as_real, describe_value
from mepg.envs.spaces import Action, Observation, Spaces, StepResult
from mepg.errors import RunFailure, UsageError
from mepg.words import many

METHOD, KEY = "action_masks", "action_mask"
Legal = npt.NDArray[np.float32]  # [A]; several have more axes in front

Ask = Callable[[], Sequence[Any]]  # what `action_masks()` of each environment returns


class LegalActions:
    """What E environments say, checked. It is found out at their first reset whether and how they say it.

    :param ask: None: they have no such method
    :param info: one of their infos of the first reset
    :param resets_itself: an ended episode is followed by the next one before anybody can ask
    """

    def __init__(self, spaces: Spaces, count: int, ask: Ask | None, info: Any, *, resets_itself: bool = False) -> None:
        self._id, self._actions, self._ask, self._resets_itself = spaces.id, spaces.actions, ask, resets_itself
        self._source = f"{METHOD}()" if ask is not None else f"info[{KEY!r}]" if KEY in _known(info) else None
        self.spaces = spaces if self._source is None else spaces.with_legal_actions()
        self.now: Legal = np.ones((count, spaces.actions.size), np.float32)
        self._asked: Sequence[Any] | None = None  # None: not yet since the last step or reset

    def forget(self) -> None:
        """Ask again: there was a step or a reset."""
        self._asked = None

    def begin(self, index: int, obs: Observation, info: Any) -> Observation:
        """The first observation of an episode, as a whole row."""
        return self._extend(index, obs, _known(info))

    def after(self, index: int, result: StepResult) -> StepResult:
        """What a step gave, with whole rows."""
        said = self._ask is None or not (result.done and self._resets_itself)
        # Nothing is chosen in a terminal state. In one that nobody could be asked about, any action may be legal.
        info = result.info if not result.terminated and said else None
        return result._replace(obs=self._extend(index, result.obs, info))

    def after_all(self, results: list[StepResult]) -> list[StepResult]:
        """What a step in every environment gave."""
        self.forget()
        return [self.after(index, result) for index, result in enumerate(results)]

    def require(self, actions: Action) -> None:
        """Refuse a policy's actions, [E, 1], unless all of them are legal now."""
        for index, action in enumerate(actions[:, 0].astype(int)):
            if not self.now[index, action]:
                raise RunFailure(
                    f"the policy chose action {action + self._actions.low[0]}, which is not legal in this state: "
                    "its algorithm has to choose by sizes.among_legal"
                )

    def _extend(self, index: int, obs: Observation, info: Mapping[str, Any] | None) -> Observation:
        """The observation, and what is legal behind it. Without an info, everything is."""
        if self._source is None:
            if info is not None and KEY in info:
                raise RunFailure(
                    f"{self._id} returned info[{KEY!r}], and none at its first reset: give one with every reset and "
                    "step, or never"
                )
            return obs
        self.now[index] = 1 if info is None else self._read(index, info)
        return np.concatenate([obs, self.now[index]])

    def _read(self, index: int, info: Mapping[str, Any]) -> Legal:
        assert self._source is not None
        if self._ask is not None:
            if self._asked is None:
                self._asked = self._ask()
            value = self._asked[index]
        elif KEY in info:
            value = info[KEY]
        else:
            raise RunFailure(
                f"{self._id} returned no {self._source}, and one at its first reset: give one with every reset and "
                "step, or never"
            )
        try:
            legal = as_legal(value, (self._actions.size,), self._source)
        except Misfit as misfit:
            raise RunFailure(f"{self._id} returned {misfit}") from None
        if not legal.any():
            raise RunFailure(
                f"{self._id} says by {self._source} that no action is legal, and its episode goes on: terminate it, "
                "or allow an action"
            )
        return legal


def _known(info: Any) -> Mapping[str, Any]:
    """An info of `reset`, which need not be one."""
    return info if isinstance(info, Mapping) else {}


def add_action_masks(spaces: Spaces, rows: Observation, action_masks: Any = None) -> Observation:
    """A user's observations, [B, S], with what `action_masks` says behind them; None: any action is legal."""
    if not spaces.sizes.n_legal:
        if action_masks is not None:
            raise UsageError(
                f"{spaces.id} did not say which actions are legal when this model learned: leave out action_masks, or "
                "learn where the environment has them"
            )
        return rows
    shape = (len(rows), spaces.actions.size)
    if action_masks is None:
        return np.concatenate([rows, np.ones(shape, np.float32)], axis=1)
    numbers = as_real(action_masks)
    single = len(rows) == 1 and (numbers is None or numbers.ndim < 2)
    try:
        legal = as_legal(action_masks, shape[1:] if single else shape, METHOD).reshape(shape)
    except Misfit as misfit:
        raise UsageError(f"predict was given {misfit}") from None
    if not legal.any(axis=1).all():
        raise UsageError(f"predict was given {METHOD} by which no action is legal: there is nothing to choose")
    return np.concatenate([rows, legal], axis=1)


def as_legal(value: Any, shape: tuple[int, ...], name: str) -> Legal:
    """1 or 0 for each action, as numbers; a `Misfit` says what is wrong with it."""
    numbers = as_real(value)
    if numbers is None or numbers.shape != shape:
        described = describe_value(value if numbers is None else numbers)
        each = f"{many(shape[-1], 'action')}" + (f" in each of {many(shape[0], 'state')}" if len(shape) > 1 else "")
        raise Misfit(f"{described} as {name}, not true or false for {each}")
    unknown = (numbers != 0) & (numbers != 1)
    if unknown.any():
        index = tuple(int(i) for i in np.argwhere(unknown)[0])
        where = index if len(index) > 1 else index[0]
        raise Misfit(f"{name} with {numbers[index]} at index {where}, not true or false")
    return numbers.astype(np.float32)
