"""What is written does what the run's own policy does, or it is not written."""

import json
import subprocess
import sys

import gymnasium
import jax
import numpy as np
import pytest

from mepg.cli import main
from mepg.errors import RunFailure
from mepg.export import convert
from mepg.export.compiled import find_compiler, run_compiled
from mepg.export.operations import trace
from mepg.storage.folder import Folder
from tests.export.policies import TINY, load_numpy
from tests.run import stubs


@pytest.mark.parametrize("name", ["me-sac", "sunrise", "ace", "ace-flat"])
def test_export(finished, name, tmp_path, capsys):
    ort = pytest.importorskip("onnxruntime")
    compiler = find_compiler() or pytest.skip("there is no C compiler")
    forms = ["--onnx", "deep/policy.onnx", "--numpy", "plain", "--c", "other/policy.h"]
    assert main(["export", str(finished / name), *forms, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    for form in ("onnx", "numpy", "c"):
        assert data[form]["difference"] <= 1e-5
        assert data[form]["seconds"] > 0
    source = convert.open_run(Folder(finished / name))
    (action,) = ort.InferenceSession("deep/policy.onnx").run(None, {"obs": source.obs})
    np.testing.assert_allclose(action, source.actions, atol=1e-5 * source.env.spaces.actions.half.max())
    text = (tmp_path / "other" / "policy.h").read_text()
    action, _ = run_compiled(compiler, text, source.env.sizes, source.obs, 1)
    np.testing.assert_allclose(
        action.reshape(source.actions.shape), source.actions, atol=1e-5 * source.env.spaces.actions.half.max()
    )
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


def test_the_best_policy_can_be_exported_and_the_file_says_what_it_is(finished, tmp_path, capsys):
    for which in ([], ["--best"]):
        assert main(["export", str(finished / "me-sac"), "--c", "policy.h", *which]) == 0
        assert ("its best evaluation" in capsys.readouterr().out) == bool(which)
        said = (tmp_path / "policy.h").read_text().partition("\n")[0]
        assert "algorithm me-sac, env StubScaled-v0" in said
        assert "step 60" in said


def test_what_differs_is_not_written(finished, monkeypatch, capsys, tmp_path):
    right = convert.open_run

    def wrong(*run, **which):
        source = right(*run, **which)
        return source._replace(actions=source.actions + 1e-4)

    monkeypatch.setattr(convert, "open_run", wrong)
    for form, to in (("--numpy", "plain"), ("--c", "policy.h")):
        if form == "--c" and find_compiler() is None:
            continue
        assert main(["export", str(finished / "me-sac"), form, to]) == 1
        assert "more than 1e-05: nothing was written" in capsys.readouterr().err
        assert not (tmp_path / to).exists()


def test_a_tie_between_actors_is_not_a_difference(finished):
    """Two actors of the same worth, here the same one twice: whichever is followed, it is right."""
    source = convert.open_run(Folder(finished / "ace-flat"))
    assert not convert._ties(source.program, source.obs).all()
    params = source.policy.state.actor.params
    twins = jax.tree.map(lambda leaf: np.repeat(leaf[:1], len(leaf), axis=0), params)
    state = source.policy.state._replace(actor=source.policy.state.actor._replace(params=twins))
    program = trace(source.policy.exploit, state, source.env.sizes.obs)
    assert convert._ties(program, source.obs).all()


class Far(stubs.Box):
    """Observations in the millions."""

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        return obs * 1e6, info

    def step(self, action):
        obs, *rest = super().step(action)
        return obs * 1e6, *rest


def test_observations_that_are_too_large_for_float32_cost_the_run_and_the_export_the_same(tmp_path, capsys):
    gymnasium.register("Far-v0", entry_point=Far, max_episode_steps=20)
    try:
        argv = ["--env", "Far-v0", "--steps", "60", "--out", "far", *TINY]
        assert main(["train", "me-ddpg", *argv]) == 0
        source = convert.open_run(Folder(tmp_path / "far"))
        # As if one observation alone gave something else, which depends on the machine's order of summing.
        assert convert._check(source._replace(rounding=1e-3, actions=source.actions + 1e-3), load_numpy(source))
        with pytest.raises(RunFailure, match="nothing was written"):
            convert._check(source._replace(rounding=0.0, actions=source.actions + 1e-3), load_numpy(source))
        assert main(["export", "far", "--numpy", "plain"]) == 0
    finally:
        del gymnasium.registry["Far-v0"]


@pytest.mark.parametrize("seen", [(), ("--actor-obs", "observation,desired_goal")])
def test_parts_of_an_observation_have_names(seen, tmp_path, capsys):
    onnx = pytest.importorskip("onnx")
    run, env = str(tmp_path / "run"), ["--env", "tests.envs.own:Reach-v0"]
    assert main(["train", "me-sac", *env, "--steps", "60", "--out", run, *TINY, "--normalize-obs", *seen]) == 0
    forms = ["--onnx", "policy.onnx", "--numpy", "plain", "--c", "policy.h"]
    assert main(["export", run, *env, *forms, "--json"]) == 0
    data = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all(data[form]["difference"] <= 1e-5 for form in ("onnx", "numpy"))
    layout = "desired_goal 0:2, observation 2:6"
    if not seen:
        layout = "achieved_goal 0:2, desired_goal 2:4, gripper.force 4:5, gripper.open 5:8, observation 8:12, "
        layout += "touched.0 12:14, touched.1 14:19"
    model = onnx.load("policy.onnx")
    assert {each.key: each.value for each in model.metadata_props}["obs"] == data["obs"] == layout
    assert model.graph.input[0].type.tensor_type.shape.dim[1].dim_value == (6 if seen else 19)
    with np.load("plain/policy.npz") as file:
        assert str(file["layout"]) == layout
    header = (tmp_path / "policy.h").read_text()
    offset = layout.partition("observation ")[2].partition(":")[0]
    assert f"#define POLICY_OBS_OBSERVATION {offset} /* observation: 4 numbers */" in header
    assert ("POLICY_OBS_GRIPPER_OPEN" in header) == (not seen)
