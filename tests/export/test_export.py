"""Every algorithm's policy, outside of mepg, does what it does inside."""

import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos import algorithms
from mepg.cli import main
from mepg.core.normalise import normalised
from mepg.core.settings import apply_settings
from mepg.core.types import Sizes
from mepg.errors import RunFailure, UsageError
from mepg.export import files
from mepg.export.numpy import to_npz
from mepg.export.onnx import open_session, to_onnx
from mepg.export.operations import trace
from mepg.export.standalone import load_policy, run
from mepg.run.config import Config
from mepg.run.folder import Folder
from mepg.run.session import Session
from tests.conftest import jit_quickly
from tests.run import stubs
from tests.test_environments import run_mepg

SIZES = Sizes(obs=3, action=2)
TINY = ["--set", "hidden=8,8", "--set", "batch_size=8", "--set", "warmup=20", "--eval-episodes", "1"]


def some_agent(name, settings=()):
    """Small, and far enough from where it began that actors differ."""
    algorithm = algorithms()[name]
    agent = algorithm.build(apply_settings(algorithm.spec, ["hidden=16,12", *settings]), SIZES)
    rng = np.random.default_rng(0)

    def shake(leaf):
        noise = 0.3 * rng.standard_normal(leaf.shape).astype(np.float32)
        return leaf + noise if leaf.dtype == jnp.float32 else leaf

    return agent, jax.tree.map(shake, agent.init(jax.random.key(0)))


def assert_exports(agent, state):
    obs = np.random.default_rng(1).standard_normal((64, SIZES.obs)).astype(np.float32)
    program = trace(agent.exploit, state, SIZES.obs)
    expected = np.asarray(jit_quickly(agent.exploit)(state, obs))
    np.testing.assert_allclose(run(program.operations, program.constants, obs)["action"], expected, atol=1e-5)
    session = open_session(to_onnx(program, SIZES.obs, {}))
    for batch in (obs, obs[:1], obs[:7]):
        (action,) = session.run(["action"], {"obs": batch})
        np.testing.assert_allclose(action, expected[: len(batch)], atol=1e-5)
    assert np.std(expected) > 0.01, "a policy that does something"
    return program


@pytest.mark.parametrize("name", algorithms())
def test_every_algorithm_exports(name):
    pytest.importorskip("onnxruntime")
    assert_exports(*some_agent(name))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ace", ["depth=1"]),
        ("ace", ["depth=3", "layer_norm=true"]),
        ("ace", ["actors=1"]),
        ("ace-flat", ["critics=3", "layer_norm=true", "improve_on=mean"]),
        ("ace-flat", ["critics=2", "improve_on=first", "gaussian.bound=clip"]),
        ("sunrise", ["members=1", "hidden=8"]),
    ],
)
def test_and_so_do_its_variants(name, settings):
    pytest.importorskip("onnxruntime")
    assert_exports(*some_agent(name, settings))


def test_normalisation_is_part_of_the_program():
    pytest.importorskip("onnxruntime")
    agent, state = some_agent("me-sac")
    agent = normalised(agent, SIZES)
    state = agent.init(jax.random.key(0))._replace(
        agent=state, mean=jnp.array([3.0, -2.0, 0.1]), variance=jnp.array([9.0, 0.0, 1e-4])
    )
    assert_exports(agent, state)


def test_only_what_the_action_depends_on_is_exported():
    agent, state = some_agent("sac")
    program = trace(agent.exploit, state, SIZES.obs)
    numbers = sum(array.size for array in program.constants.values())
    assert numbers == sum(leaf.size for leaf in jax.tree.leaves(state.actor.params)) + 2, "and the 0 of two ReLUs"


def test_an_operation_that_is_not_known_is_named():
    with pytest.raises(UsageError, match="JAX's 'cos'"):
        trace(lambda state, obs: jnp.cos(obs) + state, jnp.zeros(3), 3)


def test_the_numpy_file_cannot_run_code(tmp_path):
    agent, state = some_agent("ddpg")
    (tmp_path / "policy.npz").write_bytes(to_npz(trace(agent.exploit, state, SIZES.obs)))
    act = load_policy(tmp_path / "policy.npz")  # allow_pickle=False
    assert act(np.zeros(3)).shape == (2,)
    assert act(np.zeros((5, 3))).shape == (5, 2)


# From the command line


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("shape", [(), (2,), (1, 2), (2, 1)])
def test_actions_have_the_environments_own_shape_and_can_be_written_on(shape):
    state = np.random.default_rng(0).standard_normal((SIZES.obs, max(1, np.prod(shape, dtype=int)))).astype(np.float32)
    program = trace(lambda state, obs: jnp.tanh(obs @ state).reshape(obs.shape[0], *shape), state, SIZES.obs)
    obs = np.random.default_rng(1).standard_normal((7, SIZES.obs)).astype(np.float32)
    expected = np.tanh(obs @ state).reshape(7, *shape)
    act = load_policy(io.BytesIO(to_npz(program)))
    for given, action in (obs, expected), (obs[0], expected[0]):
        found = act(given)
        assert found.shape == np.shape(action)
        np.testing.assert_allclose(found, action, atol=1e-6)
        found *= 2
    (action,) = open_session(to_onnx(program, SIZES.obs, {})).run(["action"], {"obs": obs})
    np.testing.assert_allclose(action, expected, atol=1e-6)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Of each kind of policy, on an environment whose actions are not in [-1, 1]."""
    folder = tmp_path_factory.mktemp("runs")
    for name, more in {
        "me-sac": ["--normalize-obs"],
        "sunrise": [],
        "ace": [],
        "ace-flat": ["--set", "precision=mixed"],
    }.items():
        argv = ["train", name, "--env", "StubScaled-v0", "--steps", "60", "--out", str(folder / name), *TINY, *more]
        assert main(argv) == 0
    return folder


@pytest.mark.parametrize("name", ["me-sac", "sunrise", "ace", "ace-flat"])
def test_export(finished, name, tmp_path, capsys):
    ort = pytest.importorskip("onnxruntime")
    assert main(["export", str(finished / name), "--onnx", "deep/policy.onnx", "--numpy", "plain", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    for form in ("onnx", "numpy"):
        assert data[form]["difference"] <= 1e-5
        assert data[form]["seconds"] > 0
    source = files.open_run(Folder(finished / name))
    (action,) = ort.InferenceSession("deep/policy.onnx").run(None, {"obs": source.obs})
    np.testing.assert_allclose(action, source.actions, atol=1e-5 * source.env.spaces.actions.half.max())
    # Where nothing but NumPy can be imported, from the two files alone.
    np.save("plain/obs.npy", source.obs)
    code = "import sys; sys.modules.update(jax=None, mepg=None)\nimport numpy as np, policy\n"
    code += "act = policy.load_policy(); obs = np.load('obs.npy'); one = act(obs[0])\n"
    code += "np.save('action.npy', act(obs)); assert np.allclose(one, act(obs)[0], atol=1e-6)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "plain", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(
        np.load("plain/action.npy"), source.actions, atol=1e-5 * source.env.spaces.actions.half.max()
    )


def test_what_it_says(finished, capsys):
    assert main(["export", str(finished / "ace-flat"), "--numpy", "plain"]) == 0
    out = capsys.readouterr().out
    assert "ace-flat on StubScaled-v0" in out
    assert "networks in full precision" in out
    assert "plain/policy.npz and plain/policy.py: within" in out
    assert "microseconds for one" in out


def test_what_differs_is_not_written(finished, monkeypatch, capsys, tmp_path):
    right = files.open_run

    def wrong(*run):
        source = right(*run)
        return source._replace(actions=source.actions + 1e-4)

    monkeypatch.setattr(files, "open_run", wrong)
    assert main(["export", str(finished / "me-sac"), "--numpy", "plain"]) == 1
    assert "more than 1e-05: nothing was written" in capsys.readouterr().err
    assert not (tmp_path / "plain").exists()


def test_a_tie_between_actors_is_not_a_difference(finished):
    """Two actors of the same worth, here the same one twice: whichever is followed, it is right."""
    source = files.open_run(Folder(finished / "ace-flat"))
    assert not files._undecided(source.program, source.obs).all()
    params = source.policy.state.actor.params
    twins = jax.tree.map(lambda leaf: np.repeat(leaf[:1], len(leaf), axis=0), params)
    state = source.policy.state._replace(actor=source.policy.state.actor._replace(params=twins))
    program = trace(source.policy.exploit, state, source.env.sizes.obs)
    assert files._undecided(program, source.obs).all()


def test_an_unfinished_run_exports_its_newest_checkpoint_and_says_so(tmp_path, capsys):
    run = tmp_path / "unfinished"
    settings = ["hidden=8,8", "batch_size=8", "warmup=20"]
    config = Config.make("me-sac", settings, env="StubScaled-v0", steps=6000, eval_every=50, eval_episodes=1)
    with Session(config, run) as session:
        for record in session:
            if record.step == 60:
                session.stop(signal.SIGTERM)
    assert main(["export", str(run), "--numpy", "plain", "--card"]) == 0
    assert "the run is unfinished, this is its policy at step 60" in capsys.readouterr().out
    assert "unfinished: of 6,000" in (run / "README.md").read_text()
    shutil.rmtree(run / "checkpoints")
    assert main(["export", str(run), "--numpy", "other"]) == 2
    assert "has not reached a checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["policy.safetensors", "run.json", "evaluations.npz"])
def test_a_damaged_run_is_refused_by_name(finished, name, tmp_path, capsys):
    run = tmp_path / "damaged"
    shutil.copytree(finished / "me-sac", run)
    content = (run / name).read_bytes()
    (run / name).write_bytes(content[: len(content) // 2])
    assert main(["export", str(run), "--card", "card.md"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "damaged" in err
    assert not (tmp_path / "card.md").exists()


def test_observations_that_are_too_large_for_float32_cost_the_run_and_the_export_the_same(tmp_path, capsys):
    gymnasium.register("Far-v0", entry_point=Far, max_episode_steps=20)
    try:
        argv = ["--env", "Far-v0", "--steps", "60", "--out", "far", *TINY]
        assert main(["train", "me-ddpg", *argv]) == 0
        source = files.open_run(Folder(tmp_path / "far"))
        # As if one observation alone gave something else, which depends on the machine's order of summing.
        assert files._check(source._replace(rounding=1e-3, actions=source.actions + 1e-3), load_numpy(source))
        with pytest.raises(RunFailure, match="nothing was written"):
            files._check(source._replace(rounding=0.0, actions=source.actions + 1e-3), load_numpy(source))
        assert main(["export", "far", "--numpy", "plain"]) == 0
    finally:
        del gymnasium.registry["Far-v0"]


class Far(stubs.Box):
    """Observations in the millions."""

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        return obs * 1e6, info

    def step(self, action):
        obs, *rest = super().step(action)
        return obs * 1e6, *rest


def load_numpy(source):
    return load_policy(io.BytesIO(to_npz(source.program)))


def test_the_numpy_policy_takes_any_shape(finished, tmp_path):
    source = files.open_run(Folder(finished / "me-sac"))
    act, obs = load_numpy(source), source.obs
    one = act(obs[0])
    assert one.shape == (2,)
    assert act(obs[:0]).shape == (0, 2)
    np.testing.assert_allclose(act(obs[:6].reshape(2, 3, 3)).reshape(6, 2), act(obs[:6]), atol=1e-6)


def test_nothing_is_put_in_the_place_of_something_else(finished, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(finished / "me-sac", run)
    before = (run / "run.json").read_bytes()
    (tmp_path / "folder.onnx").mkdir()
    os.mkfifo(tmp_path / "pipe.onnx")
    for argv, says in (
        (["--onnx", str(run / "run.json")], "ends in .onnx"),
        (["--card", str(run / "run.json")], "ends in .md"),
        (["--onnx", "folder.onnx"], "folder.onnx is not a file"),
        (["--onnx", "pipe.onnx"], "pipe.onnx is not a file"),
        (["--numpy", str(run / "run.json")], "cannot be written"),
        (["--env", "Other-v0", "--numpy", "x"], "names the environment StubScaled-v0, not Other-v0"),
    ):
        assert main(["export", str(run), *argv]) == 2
        err = capsys.readouterr().err
        assert says in err
        assert err.count("\n") == 1
    assert (run / "run.json").read_bytes() == before
    assert not list(tmp_path.rglob(".*.writing"))


def test_bad_input(finished, capsys):
    assert main(["export", str(finished / "me-sac")]) == 2
    assert "say what to write: --onnx FILE" in capsys.readouterr().err
    assert main(["export", "nowhere", "--numpy", "x"]) == 2
    assert "holds no run" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_without_the_extra_it_says_what_to_install(missing, tmp_path):
    done = run_mepg("export", "run", "--onnx", "x.onnx", cwd=tmp_path, hide=[missing])
    assert done.returncode == 2
    assert done.stderr == f"mepg: --onnx needs {missing}, which is not installed: pip install 'mepg[onnx]'\n"


def test_the_card(finished, tmp_path, capsys):
    yaml = pytest.importorskip("yaml")
    assert main(["export", str(finished / "me-sac"), "--card", "card/README.md", "--json"]) == 0
    _, front, body = (tmp_path / "card" / "README.md").read_text().split("---\n", 2)
    about = yaml.safe_load(front)
    assert about["library_name"] == "mepg"
    assert {"StubScaled-v0", "me-sac", "deep-reinforcement-learning"} <= set(about["tags"])
    (metric,) = about["model-index"][0]["results"][0]["metrics"]
    assert metric["type"] == "mean_reward"
    result = json.loads((finished / "me-sac" / "result.json").read_text())
    assert metric["value"] == f"{result['final_return']:.2f} +/- {result['final_return_std']:.2f}"
    assert "--set hidden=8,8" in body
    assert "--normalize-obs --backend xla" in body
    assert "| `dropout.p` | 0.1 |" in body
    assert "| jax |" in body


def test_the_card_of_a_policy_that_can_be_filmed(tmp_path, capsys):
    pytest.importorskip("imageio_ffmpeg")
    pytest.importorskip("pybullet")
    argv = ["train", "me-ddpg", "--env", "ReacherBulletEnv-v0", "--steps", "60", "--out", "run", *TINY]
    assert main(argv) == 0
    assert main(["export", "run", "--card"]) == 0
    assert "run/README.md and run/replay.mp4" in capsys.readouterr().out
    assert "(replay.mp4)" in (tmp_path / "run" / "README.md").read_text()
    assert (tmp_path / "run" / "replay.mp4").stat().st_size > 1000


def test_every_kind_of_spec_is_covered():
    """Should an algorithm get a spec of another kind, the runs above need one of it too."""
    kinds = {type(algorithm.spec).__name__ for algorithm in algorithms().values()}
    assert kinds == {"Spec", "Sunrise", "Ace", "AceFlat"}
    assert all(dataclasses.is_dataclass(algorithm.spec) for algorithm in algorithms().values())
