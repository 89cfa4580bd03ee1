"""The NumPy form: a file that cannot run code."""

import numpy as np

from mepg.export.convert import policy_npz
from mepg.export.operations import trace
from mepg.export.standalone import load_policy
from tests.export.policies import SIZES, some_agent


def test_the_numpy_file_cannot_run_code(tmp_path):
    agent, state = some_agent("ddpg")
    (tmp_path / "policy.npz").write_bytes(policy_npz(trace(agent.exploit, state, SIZES.obs)))
    act = load_policy(tmp_path / "policy.npz")  # allow_pickle=False
    assert act(np.zeros(3)).shape == (2,)
    assert act(np.zeros((5, 3))).shape == (5, 2)
