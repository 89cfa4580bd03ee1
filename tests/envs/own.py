"""Environments of our own, in a module without JAX: a process that has one of them starts in half a second."""

from __future__ import annotations

import gymnasium
import numpy as np


class Box(gymnasium.Env):
    """A Gymnasium environment with whatever spaces and whatever faults a test asks for."""

    def __init__(self, low=-1.0, high=1.0, actions=None, observations=None, fault=None, at=0, dtype=np.float32):
        box = gymnasium.spaces.Box
        self.action_space = actions or box(low, high, (2,), dtype)
        self.observation_space = observations or box(-np.inf, np.inf, (3,), np.float32)
        self.fault, self.at = fault, at
        self.last_action = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.standard_normal(3).astype(np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.last_action = action
        self.steps += 1
        obs, reward = self.np_random.standard_normal(3).astype(np.float32), float(np.sum(action))
        if self.steps == self.at:
            match self.fault:
                case "nan observation":
                    obs[1] = np.nan
                case "infinite reward":
                    reward = float("inf")
                case "wrong shape":
                    obs = obs[:2]
                case "exception":
                    raise RuntimeError("the simulator is gone")
                case "huge reward":
                    reward = 1e30
        return obs, reward, False, self.steps >= 50 and self.fault != "no end", {}


for name, kwargs in {
    "Plain": {},
    "Scaled": {"low": -3.0, "high": 5.0},
    "Double": {"dtype": np.float64},
    "Unbounded": {"low": -np.inf, "high": np.inf},
    "Discrete": {"actions": gymnasium.spaces.Discrete(3)},
    "MultiBinary": {"actions": gymnasium.spaces.MultiBinary(3)},
    "TooMany": {"actions": gymnasium.spaces.Discrete(2**24 + 1)},
    "IntegerBox": {"actions": gymnasium.spaces.Box(0, 3, (2,), np.int64)},
    "TextObs": {"observations": gymnasium.spaces.Text(5)},
    "EmptyObs": {"observations": gymnasium.spaces.Box(-1, 1, (0,))},
    "NanObs": {"fault": "nan observation", "at": 30},
    "InfReward": {"fault": "infinite reward", "at": 30},
    "WrongShape": {"fault": "wrong shape", "at": 30},
    "Raises": {"fault": "exception", "at": 30},
    "HugeReward": {"fault": "huge reward", "at": 30},
    "Endless": {"fault": "no end"},
}.items():
    if f"Stub{name}-v0" not in gymnasium.registry:
        gymnasium.register(f"Stub{name}-v0", entry_point=Box, kwargs=kwargs)


class Adjustable(Box):
    """With an attribute and a method that a curriculum would use; ends after 50 steps."""

    def __init__(self, render_mode=None):
        super().__init__(low=-3.0, high=5.0)
        self.difficulty, self.render_mode = 1, render_mode

    def harder(self, by, *, twice=False):
        self.difficulty += by * (2 if twice else 1)
        return self.difficulty

    def render(self):
        return np.full((4, 6, 3), self.difficulty, np.uint8)


class Numbered(gymnasium.Env):
    """Observes (which episode of this copy, step); lasts 5 steps, then 8, then 5, ...; the short ones are terminal."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)

    def __init__(self):
        self.episode, self.seeds = -1, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.at = self.episode + 1, 0
        self.seeds.append(seed)
        return np.array([self.episode, 0], np.float32), {}

    def step(self, action):
        self.at += 1
        short = self.episode % 2 == 1  # the first, which is burned, is number 0
        over = self.at == (5 if short else 8)
        obs = np.array([self.episode, self.at], np.float32)
        return obs, float(self.at), over and short, over and not short, {"at": self.at}


class Talks(gymnasium.Env):
    """Says something in every step, more at the end and at the beginning; its episodes have a length of their own."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, length):
        self.length = length

    def reset(self, *, seed=None, options=None):
        assert not options, options
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(1, np.float32), {"began": True}

    def step(self, action):
        self.at += 1
        over, even = self.at == self.length, self.length % 2 == 0
        info = {"at": self.at, "text": f"step {self.at}", "more": {"twice": 2 * self.at}}
        end = {"is_success": even} if over else {}
        return np.full(1, self.at, np.float32), 1.0, over and even, over and not even, {**info, **end}


class Tidy(gymnasium.Env):
    """What it observes depends on every action of the episode; it lasts 9 steps."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    bound = 1.0

    def __init__(self):
        self.action_space = gymnasium.spaces.Box(-self.bound, self.bound, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.sum = 0, float(self.np_random.uniform())
        return self.look(), {}

    def look(self):
        self.seen = np.array([self.at, self.sum], np.float32)
        return self.seen

    def step(self, action):
        self.at += 1
        self.sum += float(action[0])
        self.done_with(action)
        return self.look(), self.sum, False, self.at == 9, {"seen": self.seen}

    def done_with(self, action):
        pass


class Scribbles(Tidy):
    """Writes on the action it was given, and on the observation that it returned before."""

    def done_with(self, action):
        action *= 0.5
        self.seen[:] = 99


class TidyWide(Tidy):
    bound = 2.0


class ScribblesWide(Scribbles):
    bound = 2.0


class Reach(gymnasium.Env):
    """Go to a goal on a plane. It observes the entries of Gymnasium-Robotics' tasks, and every kind of space."""

    observation_space = gymnasium.spaces.Dict(
        {
            "achieved_goal": gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64),
            "desired_goal": gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64),
            "gripper": gymnasium.spaces.Dict(
                {"open": gymnasium.spaces.Discrete(3, start=1), "force": gymnasium.spaces.Box(-9, 9, (), np.float32)}
            ),
            "observation": gymnasium.spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
            "touched": gymnasium.spaces.Tuple(
                [gymnasium.spaces.MultiBinary(2), gymnasium.spaces.MultiDiscrete([2, 3], start=[0, -1])]
            ),
        }
    )
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, length=20, spoil=None, at=None):
        self.length, self.spoil, self.at = length, spoil, at  # `spoil` changes what it observes at this step of all
        self.total = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.place, self.goal, self.speed = self.np_random.uniform(-1, 1, (3, 2))
        return self.look(), {}

    def step(self, action):
        self.steps, self.total = self.steps + 1, self.total + 1
        self.speed = 0.5 * self.speed + 0.2 * action
        self.place = self.place + self.speed
        obs = self.look()
        if self.total == self.at:
            obs = self.spoil(obs)
        reward = -float(np.linalg.norm(self.place - self.goal))
        return obs, reward, False, self.steps == self.length, {}

    def look(self):
        return {
            "achieved_goal": self.place.copy(),
            "desired_goal": self.goal.copy(),
            "gripper": {"open": 1 + self.steps % 3, "force": float(self.speed[0])},
            "observation": np.stack([self.speed, self.place - self.goal]),
            "touched": ((self.place > 0).astype(np.int8), np.array([self.steps % 2, self.steps % 3 - 1])),
        }


gymnasium.register("Reach-v0", entry_point=Reach)


class Camera(Reach):
    """Sees a small image besides."""

    observation_space = gymnasium.spaces.Dict(
        {"image": gymnasium.spaces.Box(0, 255, (4, 4, 3), np.uint8), **Reach.observation_space.spaces}
    )

    def look(self):
        return {"image": np.full((4, 4, 3), self.steps, np.uint8), **super().look()}


gymnasium.register("Camera-v0", entry_point=Camera)
