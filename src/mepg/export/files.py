"""From a run to files that act as it does. Each is compared with the run's own policy before it is written.

Only C may go out unseen, and says so: it needs a compiler.
"""

from __future__ import annotations

import io
import timeit
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from mepg import __version__
from mepg.algos import is_mixed
from mepg.envs.env import Env
from mepg.envs.spaces import Row
from mepg.errors import RunFailure
from mepg.export.c import to_c
from mepg.export.compiled import act_compiled, find_compiler
from mepg.export.numpy import to_npz, write_numpy
from mepg.export.onnx import open_session, to_onnx
from mepg.export.operations import ACTION, OBS, Operations, trace
from mepg.export.standalone import load_policy as load_standalone
from mepg.export.standalone import run
from mepg.jax_defaults import with_jax_defaults
from mepg.storage.files import write_whole
from mepg.storage.folder import Folder
from mepg.storage.policy import Policy, load_policy
from mepg.training.keys import episode_seed

TOLERANCE = 1e-5  # of an action in [-1, 1], and of a value by which an actor is chosen
OBSERVATIONS = 256
CALLS = 1_024  # for the latency


class Source(NamedTuple):
    """A policy to be exported, and what it does in situations that it meets."""

    policy: Policy
    env: Env
    program: Operations
    obs: Row  # [OBSERVATIONS, S]
    actions: Row  # in the environment's own bounds
    rounding: float  # how far these are from those that each observation alone gives: large observations cost digits

    @property
    def about(self) -> dict[str, str | int]:
        """What the policy is, for those who find the file without its run."""
        config = self.policy.config
        known = {"algorithm": config.algorithm, "env": config.env, "mepg": __version__}
        return {**known, "seed": config.seed, "step": self.policy.step}


class Exported(NamedTuple):
    """Files that act as the run does."""

    files: list[Path]
    difference: float | None  # the largest, of actions in [-1, 1]; None: not compared, for want of a C compiler
    undecided: int  # observations for which two actors are worth the same, and rounding decides
    seconds: float | None  # for one observation, as many calls have it; None: not compared


def open_run(folder: Folder, env_id: str | None = None, *, best: bool = False) -> Source:
    """The policy of the run in `folder`, taken apart. `env_id`: see `Folder.env`; `best`: see `load_policy`."""
    env = Env(folder.env(env_id))
    policy = _in_full_precision(load_policy(folder, env.spaces, best=best), env)
    spaces = env.spaces

    def act(state: Any, obs: jax.Array) -> jax.Array:
        return spaces.actions.scale_in_jax(policy.exploit(state, obs))

    obs = _meet(policy, env)
    actions = np.asarray(policy.exploit(policy.state, obs))
    rounding = 0.0  # an index is not rounded: where two actions are worth the same, `_undecided` says so
    if spaces.sizes.action_kind == "box":
        rounding = float(np.abs(actions - np.stack([policy.act(each) for each in obs])).max())
    return Source(policy, env, trace(act, policy.state, env.sizes.obs), obs, spaces.scale(actions), rounding)


def export_onnx(source: Source, path: Path) -> Exported:
    """One file for any runtime of ONNX."""
    about = {name: str(value) for name, value in source.about.items()}
    content = to_onnx(source.program, source.env.sizes.obs, about)
    session = open_session(content)
    checked = _check(source, lambda obs: session.run([ACTION], {OBS: obs})[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)
    return checked._replace(files=[path])


def export_numpy(source: Source, folder: Path) -> Exported:
    """Arrays and a short module, for wherever NumPy is."""
    content = to_npz(source.program)
    checked = _check(source, load_standalone(io.BytesIO(content)))
    return checked._replace(files=write_numpy(folder, content))


def export_c(source: Source, path: Path) -> Exported:
    """One file for a C compiler. Where there is one here, it is tried."""
    sizes, compiler = source.env.sizes, find_compiler()
    header = to_c(source.program, sizes, source.about)
    checked = Exported([], None, 0, None)
    if compiler is not None:
        rows, seconds = act_compiled(compiler, header, sizes, source.obs, CALLS // OBSERVATIONS)
        difference, undecided = _compare(source, rows.reshape(source.actions.shape))
        checked = Exported([], difference, undecided, seconds)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, header.encode())
    return checked._replace(files=[path])


def _in_full_precision(policy: Policy, env: Env) -> Policy:
    """Mixed precision saves time while learning; rounded on another machine, its sums would differ from ours."""
    spec = policy.config.spec
    if not is_mixed(spec):
        return policy
    agent = replace(policy.config, spec=replace(spec, precision="full")).build(env.sizes)
    return policy._replace(exploit=with_jax_defaults(jax.jit(agent.exploit)))


def _meet(policy: Policy, env: Env) -> Row:
    """Observations from episodes that the policy plays."""
    met: list[Row] = []
    episode = 0
    while len(met) < OBSERVATIONS:
        obs, over = env.reset(episode_seed(0, "eval", episode)), False
        while not over and len(met) < OBSERVATIONS:
            met.append(obs)
            obs, _, _, over, _ = env.step(policy.act(obs))
        episode += 1
    return np.stack(met)


def _check(source: Source, act: Callable[[Row], Row]) -> Exported:
    """Act on one observation alone and the others together, and compare; the latency is the median of many calls."""
    compared = _compare(source, np.concatenate([act(source.obs[:1]), act(source.obs[1:])]))
    seconds = float(np.median(timeit.repeat(lambda: act(source.obs[:1]), number=1, repeat=CALLS)))
    return Exported([], *compared, seconds)


def _compare(source: Source, actions: Any) -> tuple[float, int]:
    """How far actions are from the run's own, and how many are ties; a RunFailure if that is too far."""
    unscale = source.env.spaces.unscale
    differences = np.abs(unscale(actions) - unscale(source.actions))
    tolerance = max(TOLERANCE, 2 * source.rounding)
    undecided = _undecided(source.program, source.obs) & (differences > tolerance).any(axis=1)
    difference = float(differences[~undecided].max(initial=0))
    if not difference <= tolerance:
        raise RunFailure(
            f"what was exported differs from the run's policy by {difference:.1g}, more than {tolerance:.0e}: "
            "nothing was written"
        )
    return difference, int(undecided.sum())


def _undecided(program: Operations, obs: Row) -> Any:
    """Where the two best choices are worth the same, to rounding: either is right. [B]"""
    values, found = run(program.operations, program.constants, obs), np.zeros(len(obs), bool)
    for operation in program.operations:
        if operation.name == "argmax":
            worth = np.sort(np.moveaxis(values[operation.inputs[0]], operation.attributes["axis"], 0), axis=0)
            found |= worth[-1] - worth[-2:][0] <= TOLERANCE * np.maximum(1, np.abs(worth[-1]))
    return found
