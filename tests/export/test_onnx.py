"""The ONNX form."""

import io

import jax.numpy as jnp
import numpy as np
import pytest

from mepg.export.convert import policy_npz
from mepg.export.onnx import open_session, to_onnx
from mepg.export.operations import trace
from mepg.export.standalone import load_policy
from tests.export.policies import SIZES
from tests.run.processes import run_mepg


@pytest.mark.parametrize("shape", [(), (2,), (1, 2), (2, 1)])
def test_actions_have_the_environments_own_shape_and_can_be_written_on(shape):
    state = np.random.default_rng(0).standard_normal((SIZES.obs, max(1, np.prod(shape, dtype=int)))).astype(np.float32)
    program = trace(lambda state, obs: jnp.tanh(obs @ state).reshape(obs.shape[0], *shape), state, SIZES.obs)
    obs = np.random.default_rng(1).standard_normal((7, SIZES.obs)).astype(np.float32)
    expected = np.tanh(obs @ state).reshape(7, *shape)
    act = load_policy(io.BytesIO(policy_npz(program)))
    for given, action in (obs, expected), (obs[0], expected[0]):
        found = act(given)
        assert found.shape == np.shape(action)
        np.testing.assert_allclose(found, action, atol=1e-6)
        found *= 2
    (action,) = open_session(to_onnx(program, SIZES.obs, {})).run(["action"], {"obs": obs})
    np.testing.assert_allclose(action, expected, atol=1e-6)


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_without_the_extra_it_says_what_to_install(missing, tmp_path):
    done = run_mepg("export", "run", "--onnx", "x.onnx", cwd=tmp_path, hide=[missing])
    assert done.returncode == 2
    assert done.stderr == f"mepg: --onnx needs {missing}, which is not installed: pip install 'mepg[onnx]'\n"
