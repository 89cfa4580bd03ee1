"""One update from equal weights on equal batches, here and in Stable-Baselines3 and its contrib: `make test-sb3`."""

from dataclasses import replace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mepg.algos import dqn
from mepg.algos.tqc import TQC
from mepg.core.bellman import critic_gradient
from mepg.core.critics import make_critics
from mepg.core.nets import Layer
from mepg.core.spec import Quantiles
from mepg.core.types import Sizes
from mepg.core.update import adam_step, init_trainable
from tests.conftest import make_batch

pytestmark = pytest.mark.sb3

HIDDEN, ROWS, LR = (24, 16), 32, 1e-3
OBS = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
KEY = jax.random.key(0)


class Env(gymnasium.Env):
    observation_space = OBS

    def __init__(self, actions):
        self.action_space = actions


@pytest.fixture(scope="module")
def torch():
    pytest.importorskip("stable_baselines3")
    return pytest.importorskip("torch")


def theirs(torch, kind, actions, batch, factor, **arguments):
    """A model that will learn from this batch, whatever it has stored.

    Where our loss is a factor times theirs, so is the gradient, and Adam's eps has to be for an equal step.
    """
    from stable_baselines3.common.logger import configure
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    optimiser = {"optimizer_class": torch.optim.Adam, "optimizer_kwargs": {"eps": 1e-8 / factor}}
    arguments.setdefault("policy_kwargs", {}).update(net_arch=list(HIDDEN), activation_fn=torch.nn.ReLU, **optimiser)
    model = kind("MlpPolicy", Env(actions), learning_rate=LR, buffer_size=100, seed=0, device="cpu", **arguments)
    model.set_logger(configure(None, []))
    tensor = lambda x: torch.as_tensor(np.array(x, np.float32))  # noqa: E731
    column = lambda x: tensor(x)[:, None]  # noqa: E731
    sample = ReplayBufferSamples(
        tensor(batch.obs),
        tensor(batch.action),
        tensor(batch.next_obs),
        column(1 - batch.discount),
        column(batch.reward),
    )
    model.replay_buffer.sample = lambda *_, **__: sample
    return model


def layers(modules, rearranged=lambda x: x):
    """The linear layers of several of their networks as ours; the last layer's outputs may be in another order."""
    each = []
    for module in modules:
        linear = [layer for layer in module.modules() if type(layer).__name__ == "Linear"]
        arrays = [
            (np.array(layer.weight.detach().numpy().T), np.array(layer.bias.detach().numpy())) for layer in linear
        ]
        arrays[-1] = tuple(map(rearranged, arrays[-1]))
        each.append(tuple(Layer(jnp.asarray(w), jnp.asarray(b)) for w, b in arrays))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)


def assert_close(ours, others):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(others), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def check_values(torch, kind, spec, factor, rearranged=lambda x: x, **arguments):
    sizes = Sizes(3, 4, "discrete")
    batch = make_batch(ROWS, sizes)._replace(reward=3 * make_batch(ROWS, sizes).reward)  # some far, some near
    model = theirs(torch, kind, gymnasium.spaces.Discrete(4), batch, factor, **arguments)
    q_net = [getattr(model, name) for name in ("q_net", "quantile_net") if hasattr(model, name)]
    target = [getattr(model, name) for name in ("q_net_target", "quantile_net_target") if hasattr(model, name)]
    for network in target:  # another one than the online one
        for p in network.parameters():
            p.data.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    spec = replace(spec, double=False, hidden=HIDDEN, critic_lr=LR, batch_size=ROWS, target_every=10**6)
    agent = dqn.build(spec, sizes)
    theta, theta_target = layers(q_net, rearranged), layers(target, rearranged)
    state = agent.init(KEY)._replace(critic=init_trainable(theta, with_target=True)._replace(target=theta_target))
    state, metrics = agent.update(state, batch, KEY)
    model.train(1, ROWS)
    assert float(metrics["critic_loss"].value) == pytest.approx(
        factor * model.logger.name_to_value["train/loss"], rel=1e-5
    )
    assert_close(state.critic.params, layers(q_net, rearranged))
    obs = make_batch(50, sizes, seed=1).obs
    np.testing.assert_array_equal(
        agent.exploit(state, obs)[:, 0], model.predict(np.asarray(obs), deterministic=True)[0]
    )


@pytest.mark.parametrize("norm", [10.0, 0.1])
def test_dqn(torch, norm):
    from stable_baselines3 import DQN

    check_values(torch, DQN, replace(dqn.DQN, max_grad_norm=norm), 1, max_grad_norm=norm)


def test_qr_dqn(torch):
    """Their loss is added up over quantiles, and ours is the mean, times 2. Their outputs are [K, A], ours [A, K]."""
    contrib = pytest.importorskip("sb3_contrib")

    def rearranged(x):
        return x.reshape(*x.shape[:-1], 7, 4).swapaxes(-1, -2).reshape(x.shape)

    spec = replace(dqn.QR_DQN, quantiles=Quantiles(count=7))
    check_values(torch, contrib.QRDQN, spec, 2 / 7, rearranged, policy_kwargs={"n_quantiles": 7})


def test_tqc(torch):
    """The critics' update and the policy's loss, with a' and log pi(a' | s') as given.

    Their loss is the mean over two critics, and ours the sum, times 2.
    """
    contrib = pytest.importorskip("sb3_contrib")
    sizes = Sizes(3, 2)
    batch, actions = make_batch(ROWS, sizes), make_batch(ROWS, sizes, seed=1).action
    log_prob = make_batch(ROWS, sizes, seed=2).reward
    box = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    model = theirs(
        torch, contrib.TQC, box, batch, 4, ent_coef=0.2, tau=1e-9, top_quantiles_to_drop_per_net=2,
        policy_kwargs={"n_quantiles": 25, "n_critics": 2},
    )  # fmt: skip
    model.actor.action_log_prob = lambda _: (torch.as_tensor(actions), torch.as_tensor(log_prob))
    for p in model.critic_target.parameters():
        p.data.add_(0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    spec = replace(TQC, hidden=HIDDEN, critic_lr=LR)
    critics = make_critics(spec, sizes)
    theta, theta_target = layers(model.critic.q_networks), layers(model.critic_target.q_networks)
    gradient, metrics = critic_gradient(
        critics, spec, theta, theta_target, lambda *_: (actions, log_prob), 0.2, batch, KEY
    )
    learned = adam_step(init_trainable(theta, with_target=False), gradient, LR).params
    model.train(1, ROWS)
    said = model.logger.name_to_value
    assert float(metrics["critic_loss"]) == pytest.approx(4 * said["train/critic_loss"], rel=1e-5)
    assert_close(learned, layers(model.critic.q_networks))
    policy_loss = (0.2 * log_prob - critics.policy_q(learned, batch.obs, actions, None)).mean()
    assert float(policy_loss) == pytest.approx(said["train/actor_loss"], rel=1e-5)
