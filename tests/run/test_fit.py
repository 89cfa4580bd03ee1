"""The policy that a run leaves."""

import jax
import numpy as np
import pytest

from mepg.core.types import Trainable
from mepg.envs.env import Env
from mepg.errors import UsageError
from mepg.storage.folder import Folder
from mepg.storage.identity import Identity
from mepg.storage.policy import load_policy, online_networks, save_policy
from mepg.training.config import Config
from tests.conftest import jit_quickly, leaves_equal
from tests.run import stubs  # noqa: F401

CONFIG = Config.make("me-sac", ["hidden=8,8"], env="StubScaled-v0", steps=100)


@pytest.fixture(scope="module")
def env():
    return Env("StubScaled-v0")


@pytest.fixture(scope="module")
def state(env):
    return jit_quickly(CONFIG.build(env.sizes).init)(jax.random.key(0))


@pytest.fixture
def folder(tmp_path, env, state):
    folder = Folder(tmp_path)
    folder.claim(CONFIG, env.spaces).close()
    save_policy(folder, Identity(CONFIG, env.spaces), state, CONFIG.steps)
    return folder


def test_it_comes_back_and_acts_as_the_agent_did(folder, env, state):
    policy = load_policy(folder, env.spaces)
    assert (policy.step, policy.title) == (100, "me-sac on StubScaled-v0")
    assert leaves_equal(policy.state, online_networks(state))
    obs = np.array([0.3, -0.2, 0.1], np.float32)
    expected = CONFIG.build(env.sizes).exploit(state, obs[None])[0]
    np.testing.assert_allclose(policy.act(obs), expected, atol=1e-6)
    assert policy._replace(step=60).title.endswith("the run is unfinished, this is its policy at step 60")


def test_only_what_acting_needs_is_kept(state):
    kept = jax.tree.leaves(online_networks(state), is_leaf=lambda leaf: isinstance(leaf, Trainable))
    trained = [leaf for leaf in kept if isinstance(leaf, Trainable)]
    assert trained
    assert all(leaf.target is None and leaf.moments is None for leaf in trained)
    assert leaves_equal(online_networks(online_networks(state)), online_networks(state))


def test_another_runs_policy_is_not_played(folder, env, state):
    other = Config.make("me-sac", ["hidden=8,8"], env="StubScaled-v0", steps=100, seed=1)
    save_policy(folder, Identity(other, env.spaces), state, CONFIG.steps)
    with pytest.raises(UsageError, match=r"holds a damaged policy: policy\.safetensors is another run's"):
        load_policy(folder, env.spaces)


def test_without_a_policy_or_a_checkpoint_there_is_none_yet(folder, env):
    folder.policy_file.unlink()
    with pytest.raises(UsageError, match="holds no policy yet: its run has not reached a checkpoint"):
        load_policy(folder, env.spaces)
    with pytest.raises(UsageError, match=r"trained on StubScaled-v0 with actions from \[-3\.0, -3\.0\], and StubPlain"):
        load_policy(folder, Env("StubPlain-v0").spaces)
