"""A policy without the library that trained it. Needs NumPy, and policy.npz next to this file.

from policy import load_policy
act = load_policy()
action = act(observation)  # or a batch of them; actions are in the environment's own bounds
action = act(observation, action_masks)  # of a policy that was trained where some actions are not legal
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

NUMPY_NAMES = "add subtract multiply divide maximum minimum tanh sqrt exp log negative less greater where matmul argmax"
OPERATIONS: dict[str, Any] = {
    name: getattr(np, name) for name in [*NUMPY_NAMES.split(), "reshape", "take_along_axis"]
} | {
    "max": lambda x, axes: x.max(tuple(axes)),
    "min": lambda x, axes: x.min(tuple(axes)),
    "sum": lambda x, axes: x.sum(tuple(axes)),
    "cast": lambda x, to: x.astype(to),
    "transpose": lambda x, perm: x.transpose(perm),
    "expand": lambda x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, shape)),
    "concatenate": lambda *x, axis: np.concatenate(x, axis),
    "slice": lambda x, axis, start, end: x.take(range(start, end), axis),
}


def run(operations: Any, constants: dict[str, Any], obs: Any) -> dict[str, Any]:
    """All values of the program by name, from the observations, "obs" [B, S], to the actions, "action"."""
    values = {**constants, "obs": obs}
    for name, inputs, output, attributes in operations:
        values[output] = OPERATIONS[name](*(values[value] for value in inputs), **attributes)
    return values


def load_policy(path: Any = None) -> Any:
    """A function from one observation, or a batch, and perhaps what is legal, to actions."""
    with np.load(path or Path(__file__).with_name("policy.npz"), allow_pickle=False) as file:
        constants = dict(file)
    operations = json.loads(str(constants.pop("operations")))

    def act(obs: Any, action_masks: Any = None) -> Any:
        obs = np.asarray(obs, np.float32)
        if action_masks is not None:
            obs = np.concatenate([obs, np.asarray(action_masks, np.float32)], axis=-1)
        actions = run(operations, constants, obs.reshape(-1, obs.shape[-1]))["action"]
        return np.array(actions).reshape(obs.shape[:-1] + actions.shape[1:])

    return act
