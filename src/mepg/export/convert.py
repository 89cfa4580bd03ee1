"""Converts a run's policy to ONNX, NumPy or C. The result is compared with the run's policy before it is written.

Without a C compiler, the C file is written without the comparison, and the command says so.
"""

from __future__ import annotations

import io
import json
import timeit
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mepg import __version__
from mepg.algos import is_mixed
from mepg.core.types import Sizes
from mepg.envs.env import Env
from mepg.envs.spaces import Action, Observation
from mepg.errors import RunFailure
from mepg.export import standalone
from mepg.export.c import to_c
from mepg.export.compiled import find_compiler, run_compiled
from mepg.export.onnx import open_session, to_onnx
from mepg.export.operations import ACTION, OBS, PolicyProgram, trace
from mepg.jax_defaults import with_jax_defaults
from mepg.storage.files import not_writable, to_npz, write_atomic
from mepg.storage.folder import Folder
from mepg.storage.policy import SavedPolicy, load_policy
from mepg.training.config import Config
from mepg.training.keys import episode_seed

TOLERANCE = 1e-5  # for actions in [-1, 1], and for the values by which an actor is chosen
OBSERVATIONS = 256  # to compare on
CALLS = 1_024  # to measure the latency


class Source(NamedTuple):
    """A policy to be exported, with observations and its actions to compare with."""

    policy: SavedPolicy
    env: Env
    sizes: Sizes  # of the policy by itself
    program: PolicyProgram
    obs: Observation  # the policy's input, [OBSERVATIONS, `sizes.obs_width`]
    actions: Action  # in the environment's own bounds
    rounding: float  # the largest difference to the actions of single observations; large observations cost digits

    @property
    def about(self) -> dict[str, str | int]:
        """Metadata for the exported file."""
        config = self.policy.config
        names = {"algorithm": config.algorithm, "env": config.env, "mepg": __version__}
        layout = ", ".join(f"{entry.name} {entry.start}:{entry.end}" for entry in self.sizes.named_entries)
        return {**names, "seed": config.seed, "step": self.policy.step, **({"obs": layout} if layout else {})}


class Exported(NamedTuple):
    """The files that were written, and how they compare with the run's policy."""

    files: list[Path]
    difference: float | None  # the largest, of actions in [-1, 1]; None: not compared, because there is no C compiler
    undecided: int  # observations for which two actors have the same value, so that rounding decides
    seconds: float | None  # for one observation; None: not compared


def open_run(folder: Folder, env_id: str | None = None, *, best: bool = False) -> Source:
    """The policy of the run in `folder`, ready to export. `env_id`: see `Folder.env`; `best`: see `load_policy`."""
    env = Env(folder.env(env_id))
    policy = load_policy(folder, env.spaces, best=best)
    config = _in_full_precision(policy.config)
    if config != policy.config:
        policy = policy._replace(exploit=with_jax_defaults(jax.jit(config.build(env.sizes).exploit)))
    spaces, sizes, exploit = env.spaces, config.with_actor_entries(env.sizes), config.build_policy(env.sizes)

    def act(state: object, policy_input: jax.Array) -> jax.Array:
        return spaces.actions.scale_in_jax(exploit(state, policy_input))

    obs = _collect_observations(policy, env)
    actions = np.asarray(policy.exploit(policy.state, obs))
    rounding = 0.0  # an index is not rounded; `_ties` finds actions of the same value
    if spaces.sizes.action_kind == "box":
        rounding = float(np.abs(actions - np.stack([policy.act(single) for single in obs])).max())
    program = trace(act, policy.state, sizes.policy_sizes.obs_width)
    policy_input = np.asarray(sizes.policy_input(jnp.asarray(obs)))
    return Source(policy, env, sizes.policy_sizes, program, policy_input, spaces.scale(actions), rounding)


def export_onnx(source: Source, path: Path) -> Exported:
    """Write one file for any ONNX runtime."""
    about = {name: str(value) for name, value in source.about.items()}
    content = to_onnx(source.program, source.sizes.obs_width, about)
    session = open_session(content)
    checked = _check(source, lambda obs: session.run([ACTION], {OBS: obs})[0])
    return Exported(_write({path: content}), *checked)


def export_numpy(source: Source, folder: Path) -> Exported:
    """Write policy.npz with arrays and operations, and policy.py, which needs only NumPy and runs them."""
    content = policy_npz(source.program, str(source.about.get("obs", "")))
    checked = _check(source, standalone.load_policy(io.BytesIO(content)))
    module = Path(standalone.__file__).read_bytes()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(folder, error) from None
    return Exported(_write({folder / "policy.npz": content, folder / "policy.py": module}), *checked)


def policy_npz(program: PolicyProgram, layout: str = "") -> bytes:
    """A file that `np.load` reads with `allow_pickle=False`; `layout` says where an observation's parts are in it."""
    about = {"operations": np.array(json.dumps(program.operations))} | ({"layout": np.array(layout)} if layout else {})
    return to_npz({**about, **program.constants})


def export_c(source: Source, path: Path) -> Exported:
    """Write one C file. It is compared with the run if there is a C compiler."""
    sizes, compiler = source.sizes, find_compiler()
    header = to_c(source.program, sizes, source.about)
    if compiler is None:
        return Exported(_write({path: header.encode()}), None, 0, None)
    actions, seconds = run_compiled(compiler, header, sizes, source.obs, CALLS // OBSERVATIONS)
    compared = _compare(source, actions.reshape(source.actions.shape))
    return Exported(_write({path: header.encode()}), *compared, seconds)


def _write(files: dict[Path, bytes]) -> list[Path]:
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
    return list(files)


def _in_full_precision(config: Config) -> Config:
    """Mixed precision saves time in training. In an export, other machines would round its sums differently."""
    return replace(config, spec=replace(config.spec, precision="full")) if is_mixed(config.spec) else config


def _collect_observations(policy: SavedPolicy, env: Env) -> Observation:
    """Observations from episodes of the policy."""
    collected: list[Observation] = []
    episode = 0
    while len(collected) < OBSERVATIONS:
        obs, done = env.reset(episode_seed(0, "eval", episode)), False
        while not done and len(collected) < OBSERVATIONS:
            collected.append(obs)
            obs, _, _, done, _ = env.step(policy.act(obs))
        episode += 1
    return np.stack(collected)


def _check(source: Source, act: Callable[[Observation], Action]) -> tuple[float, int, float]:
    """Difference, ties and latency, of a single observation and a batch. The latency is the median of many calls."""
    actions = np.concatenate([act(source.obs[:1]), act(source.obs[1:])])
    seconds = float(np.median(timeit.repeat(lambda: act(source.obs[:1]), number=1, repeat=CALLS)))
    return *_compare(source, actions), seconds


def _compare(source: Source, actions: Any) -> tuple[float, int]:
    """The largest difference to the run's actions, and the number of ties; a RunFailure if it exceeds the tolerance."""
    unscale = source.env.spaces.unscale
    differences = np.abs(unscale(actions) - unscale(source.actions))
    tolerance = max(TOLERANCE, 2 * source.rounding)
    ties = _ties(source.program, source.obs) & (differences > tolerance).any(axis=1)
    difference = float(differences[~ties].max(initial=0))
    if not difference <= tolerance:
        raise RunFailure(
            f"the exported policy differs from the run's policy by {difference:.1g}, more than {tolerance:.0e}: "
            "nothing was written"
        )
    return difference, int(ties.sum())


def _ties(program: PolicyProgram, obs: Observation) -> Any:
    """Where the two best choices have the same value, up to rounding, so that either is right. [B]"""
    values, ties = standalone.run(program.operations, program.constants, obs), np.zeros(len(obs), bool)
    for operation in program.operations:
        if operation.name == "argmax":
            ranked = np.sort(np.moveaxis(values[operation.inputs[0]], operation.attributes["axis"], 0), axis=0)
            ties |= ranked[-1] - ranked[-2:][0] <= TOLERANCE * np.maximum(1, np.abs(ranked[-1]))
    return ties
