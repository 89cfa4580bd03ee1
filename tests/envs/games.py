"""Games in which some moves are illegal, and environments that say it in a wrong way."""

from __future__ import annotations

import gymnasium
import numpy as np

LINES = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])


class Noughts(gymnasium.Env):
    """Noughts and crosses against a random opponent: 1 for a win, -1 for a loss, and for a move onto a mark, which ends
    the game too. Moves are counted from 1. `illegal` counts these moves, of all games.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (9,), np.float32)
    action_space = gymnasium.spaces.Discrete(9, start=1)

    def __init__(self):
        self.illegal = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.board = np.zeros(9, np.float32)
        if self.np_random.random() < 0.5:
            self.board[self.np_random.integers(9)] = -1
        return self.board.copy(), {}

    def step(self, action):
        if self.board[action - 1]:
            self.illegal += 1
            return self.board.copy(), -1.0, True, False, {}
        self.board[action - 1] = 1
        if not self.is_won() and (self.board == 0).any():
            self.board[self.np_random.choice(np.flatnonzero(self.board == 0))] = -1
        won = self.is_won()
        return self.board.copy(), won, bool(won) or not (self.board == 0).any(), False, {}

    def is_won(self):
        """1 for us, -1 for the other, 0 for nobody yet."""
        sums = self.board[LINES].sum(axis=1)
        return float((sums == 3).any()) - float((sums == -3).any())


class LegalNoughts(Noughts):
    """Says which moves are legal: none, when the board is full."""

    def action_masks(self):
        return self.board == 0


class InfoNoughts(Noughts):
    """Says the same in its info."""

    def reset(self, **kwargs):
        obs, info = super().reset(**kwargs)
        return obs, {**info, "action_mask": (self.board == 0).astype(np.int8)}

    def step(self, action):
        *result, info = super().step(action)
        return *result, {**info, "action_mask": (self.board == 0).astype(np.int8)}


class Corridor(gymnasium.Env):
    """Left, stay and right on a line of five fields, of which one cannot walk off; 12 steps, cut by a time limit.

    :param said: what it says is legal, from its place and the step; None: nothing
    :param by: how: "action_masks" or "info"
    """

    observation_space = gymnasium.spaces.Discrete(5)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, by="action_masks", said=None):
        self.by, self.said, self.illegal = by, said or (lambda place, at: self.true()), 0
        if by == "action_masks":
            self.action_masks = lambda: self.said(self.place, self.at)

    def true(self):
        return [self.place > 0, True, self.place < 4]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.at = int(self.np_random.integers(5)), 0
        return self.place, self.info()

    def step(self, action):
        self.illegal += not self.true()[action]
        self.place, self.at = int(np.clip(self.place + action - 1, 0, 4)), self.at + 1
        return self.place, float(self.place == 2), False, self.at == 12, self.info()

    def info(self):
        said = self.said(self.place, self.at) if self.by == "info" else None
        return {} if said is None else {"action_mask": said}


gymnasium.register("Noughts-v0", entry_point=Noughts)
gymnasium.register("LegalNoughts-v0", entry_point=LegalNoughts)
gymnasium.register("InfoNoughts-v0", entry_point=InfoNoughts)
gymnasium.register("Corridor-v0", entry_point=Corridor)
