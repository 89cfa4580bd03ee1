"""A model's files: what it has learned, its replay memory, and copies of it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

from mepg.api.acting import Acting, Loaded
from mepg.api.files import Location, SavedModel, name_of, read_model, read_rows, run_at, write, write_rows
from mepg.api.parameters import flat, nested, replaced
from mepg.envs.vector import make_envs
from mepg.errors import UsageError
from mepg.settings import describe
from mepg.storage.checkpoint import flatten, unflatten
from mepg.storage.files import Damaged
from mepg.storage.folder import versions
from mepg.storage.identity import Identity
from mepg.storage.policy import read_best, ready_to_learn
from mepg.training.config import Config
from mepg.training.loop import Loop
from mepg.training.program import Program
from mepg.training.queries import AgentQueries
from mepg.training.replay import Replay

# What Stable-Baselines3 would leave out of a file, or is asked to, and is not in ours anyway.
NOT_SAVED = frozenset(
    ("replay_buffer", "rollout_buffer", "env", "eval_env", "logger", "ep_info_buffer", "ep_success_buffer",
     "tensorboard_log", "verbose", "device")
)  # fmt: skip


class Storage(Acting):
    """Saved, loaded and copied."""

    @property
    def replay_buffer(self) -> Replay | None:
        return None if self._standing is None else self._standing.replay

    def get_parameters(self) -> dict[str, Any]:
        """All arrays of the agent's state, by name: {"actor": {"params": {"0": {"w": ...}}}}; copies."""
        with self._still() as now:
            return nested(_by_name(self._program.unflatten(now.device_state)))

    def set_parameters(
        self,
        load_path_or_dict: Location | Mapping[str, Any],
        exact_match: bool = True,
        device: str = "auto",
    ) -> None:
        """Put other numbers into the agent's state: what `get_parameters` gave, or a file that `save` wrote.

        :param exact_match: refuse unless all are given; False: set only those that are given
        """
        require_cpu(device)
        if isinstance(load_path_or_dict, Mapping):
            given = flat(load_path_or_dict)
        else:
            arrays = read_model(load_path_or_dict).arrays
            given = {name.removeprefix("agent."): array for name, array in arrays.items()}
        with self._still() as now:
            state = self._program.unflatten(now.device_state)
            arrays = replaced(_by_name(state), given, all_of_them=exact_match)
            named = {f"agent.{name}": array for name, array in arrays.items()}
            now.device_state = self._program.flatten(unflatten(named, state, "agent"))

    def save(self, path: Location, exclude: Any = None, include: Any = None) -> None:
        """Write the model to a file, or into an open one: networks, optimisers, normaliser, spec and counters.

        The replay memory is not among them: `save_replay_buffer`.
        """
        if include:
            raise UsageError(f"include={include!r}: a model's file holds all but the replay memory: save_replay_buffer")
        names = exclude if isinstance(exclude, Iterable) and not isinstance(exclude, str) else [exclude]
        if kept := [name for name in names if name is not None and name not in NOT_SAVED]:
            raise UsageError(f"exclude={kept!r}: a model's file holds all that it takes to load it; leave exclude out")
        spaces = self._need_spaces()
        with self._still() as now:
            if isinstance(now, Loop):
                now.check_finite()  # networks that are no longer finite are not worth a file
            arrays = flatten(self._program.unflatten(now.device_state), "agent")
            identity = Identity(self._config, spaces)
            saved = SavedModel(
                identity, now.step, self.num_timesteps, now.next_episode, arrays, versions(self._config.backend)
            )
            content = saved.to_bytes()
        write(path, ".zip", content)

    def _restore(self, saved: SavedModel, path: Location, *, best: bool) -> None:
        """Take on what a file holds, without an environment to learn in."""
        (config, spaces), steps, num_timesteps = saved.identity, saved.steps, saved.num_timesteps
        self._spaces = spaces
        self._config = replace(self._make_config(spaces.id, self._n_envs), backend=Program.backend)
        agent = self._config.build(spaces.sizes)
        self._program, self._questions = Program(self._config, agent, spaces.sizes), AgentQueries(agent, self.seed)
        template = self._program.template
        try:
            state = unflatten(saved.arrays, template, "agent")
        except Damaged as damage:
            _require_same_networks(saved, self._config, name_of(path))
            raise UsageError(f"{name_of(path)} is damaged: {damage}") from None
        if best:
            online, steps, _ = read_best(run_at(path), config, template)
            state, num_timesteps = ready_to_learn(online, template), steps
        self._standing = Loaded(self._program.flatten(state), steps, saved.episodes, None, threading.RLock())
        self._learn_began_at = steps - num_timesteps

    def save_replay_buffer(self, path: Location) -> None:
        """Write the replay memory to a file of its own."""
        with self._still() as now:
            if now.replay is None:
                raise UsageError("this model has no replay memory: it was loaded, and has not learned since")
            rows = now.replay.read(now.replay.oldest, now.replay.count)
        write_rows(path, rows)

    def load_replay_buffer(self, path: Location, truncate_last_traj: bool = True) -> None:  # noqa: ARG002
        """Read what `save_replay_buffer` wrote. `truncate_last_traj` is for hindsight, which is not here."""
        loop = self._need_loop()
        rows = read_rows(path, loop.replay.width)
        with self._still():
            loop.replace_rows(rows)

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError("a model cannot be pickled: model.save(path), or model.save(io.BytesIO()), and mepg.load")

    def __copy__(self) -> Self:
        """As a deep copy: two models cannot share what they learn."""
        return copy.deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A model of its own, with all that this one has learned.

        If the environment was given by its id, the copy makes its own and goes on just as this one would. An
        environment object is not copied, because many simulators would break: give the copy one with `set_env`.
        """
        self._refuse_while_learning_elsewhere("save it, or copy it in a callback")
        ours: dict[str, Any] = {"_learning": threading.Lock(), "_learner": None, "_standing": None, "_env": None}
        ours |= {"_logger": None, "_custom_logger": False}
        shared = {name: vars(self)[name] for name in ("_program", "_config") if name in vars(self)}
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        vars(twin).update(ours | shared)
        vars(twin).update({k: copy.deepcopy(v, memo) for k, v in vars(self).items() if k not in ours | shared})
        now = self._standing
        if isinstance(now, Loop) and self._env_id is not None:
            snapshot = now.snapshot()
            twin._enter(make_envs(self._env_id, now.envs.count, self.seed), self._env_id)
            loop = twin._need_loop()
            loop.replay.restore_from(now.replay)
            loop.restore(snapshot)
            loop.left = now.left
        elif now is not None:
            replay = None
            if now.replay is not None:
                replay = Replay(now.replay.capacity, now.replay.sizes)
                replay.restore_from(now.replay)
            device_state = self._program.flatten(self._program.unflatten(now.device_state))
            twin._standing = Loaded(device_state, now.step, now.next_episode, replay, threading.RLock())
        return twin


def require_cpu(device: Any) -> None:
    """Refuse another device."""
    if str(device) not in ("auto", "cpu"):
        raise UsageError(f"device={device!r}: mepg computes on the CPU")


def _require_same_networks(saved: SavedModel, config: Config, name: str) -> None:
    """If a file's arrays fit the networks that were saved, but not these: say what was asked to be different."""
    then, spaces = saved.identity
    try:
        unflatten(saved.arrays, Program(then, then.build(spaces.sizes), spaces.sizes).template, "agent")
    except Damaged:
        return
    before, now = ({**describe(one.spec), "normalize_obs": str(one.normalize_obs)} for one in (then, config))
    different = [field for field in before | now if before.get(field) != now.get(field)]
    shown = ", ".join(f"{field}={before.get(field)} there, {now.get(field)} here" for field in different)
    raise UsageError(f"{name} holds other networks than were asked for ({shown}): load it without that argument")


def _by_name(state: Any) -> dict[str, Any]:
    return {name.removeprefix("agent."): array for name, array in flatten(state, "agent").items()}
