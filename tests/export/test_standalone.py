"""The module that carries a policy out where there is nothing but NumPy."""

import numpy as np

from mepg.export import convert
from mepg.storage.folder import Folder
from tests.export.policies import load_numpy


def test_the_numpy_policy_takes_any_shape(finished, tmp_path):
    source = convert.open_run(Folder(finished / "me-sac"))
    act, obs = load_numpy(source), source.obs
    one = act(obs[0])
    assert one.shape == (2,)
    assert act(obs[:0]).shape == (0, 2)
    np.testing.assert_allclose(act(obs[:6].reshape(2, 3, 3)).reshape(6, 2), act(obs[:6]), atol=1e-6)
