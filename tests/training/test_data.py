"""Transitions from elsewhere as rows of the replay buffer; files of them: tests/storage/test_data.py."""

import gymnasium
import numpy as np
import pytest

from mepg.core.types import Sizes
from mepg.envs.spaces import Spaces
from mepg.errors import UsageError
from mepg.training.data import Recording, StoredReplay, digest_arrays
from mepg.training.replay import unpack
from tests.envs.games import LegalNoughts
from tests.run.stubs import CountingEnv, make_loop
from tests.training.recordings import record


def spaces_of(env_id):
    env = gymnasium.make(env_id)
    return Spaces(env_id, env.observation_space, env.action_space)


def rows_of(env_id, columns, n_step=1, discount=0.9):
    spaces = spaces_of(env_id)
    rows = Recording("it", columns).to_rows(spaces, n_step, discount)
    return unpack(rows, np.arange(len(rows)), spaces.sizes)


def test_actions_are_scaled_and_all_else_stays():
    columns = record("StubScaled-v0")
    batch = rows_of("StubScaled-v0", columns)
    np.testing.assert_array_equal(batch.obs, columns["observations"])
    np.testing.assert_array_equal(batch.next_obs, columns["next_observations"])
    np.testing.assert_allclose(batch.action, (columns["actions"] - 1) / 4, atol=1e-6)  # from -3 to 5
    np.testing.assert_array_equal(batch.reward, columns["rewards"].astype(np.float32))
    np.testing.assert_array_equal(batch.discount, np.ones(150))  # its episodes only ever run out of time


def test_a_discrete_action_is_an_index():
    columns = record("CartPole-v1")
    batch = rows_of("CartPole-v1", columns)
    np.testing.assert_array_equal(batch.action[:, 0], columns["actions"])
    np.testing.assert_array_equal(batch.discount, 1 - columns["terminations"])


def test_a_dict_is_flattened_as_the_environment_does_it():
    env_id = "tests.envs.own:Reach-v0"
    columns = record(env_id, episodes=1)
    batch, env = rows_of(env_id, columns), gymnasium.make(env_id)
    flat = Spaces(env_id, env.observation_space, env.action_space).obs
    np.testing.assert_array_equal(batch.obs[0], flat(env.reset(seed=0)[0]))
    for action, next_obs in zip(columns["actions"], batch.next_obs, strict=True):
        np.testing.assert_array_equal(next_obs, flat(env.step(action)[0]))
    assert {"observations.gripper.open", "observations.touched.1"} <= columns.keys()


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("says_truncated", [True, False])
@pytest.mark.parametrize("n_step", [1, 2, 3, 9])
def test_returns_of_n_steps_are_those_of_the_loop(n_step, terminal, says_truncated):
    """What a run of single steps stored becomes what a run of n steps stores: bit for bit."""

    def stored(n):
        loop = make_loop(steps=21, warmup=100, ahead=(n, 0.9), env=CountingEnv(7, terminal=terminal))
        list(loop)
        return loop.replay.read(0, 21)

    single = unpack(stored(1), np.arange(21), Sizes(1, 1))
    ends = np.arange(1, 22) % 7 == 0
    columns = {
        "observations": single.obs, "next_observations": single.next_obs, "actions": single.action,
        "rewards": single.reward, "terminations": ends & terminal,
    }  # fmt: skip
    if says_truncated:
        columns["truncations"] = ends & (not terminal)
    rows = Recording("it", columns).to_rows(CountingEnv().spaces, n_step, 0.9)
    np.testing.assert_array_equal(rows, stored(n_step))


def test_an_episode_that_was_cut_off_where_the_next_begins():
    """Only `truncations` can tell."""
    columns = {"observations": np.zeros((2, 1)), "next_observations": np.zeros((2, 1)), "actions": np.zeros((2, 1))}
    columns |= {"rewards": np.array([1, 2]), "terminations": np.zeros(2)}
    totals = [
        Recording("it", {**columns, **more}).to_rows(CountingEnv().spaces, 2, 0.5)[:, 2].tolist()
        for more in ({}, {"truncations": np.array([1, 0])})
    ]
    assert totals == [[2, 2], [1, 2]]


GOOD = record("StubPlain-v0", episodes=1)


def changed(name, index, value):
    column = GOOD[name].astype(np.float64)
    column[index] = value
    return {name: column}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (changed("observations", (7, 1), np.nan), "it: observations holds nan in transition 7; leave out what is not"),
        (changed("next_observations", (3, 0), 1e300), "it: next_observations holds 1e.300 in transition 3"),
        (changed("rewards", 4, -np.inf), "it: rewards holds -inf in transition 4"),
        (changed("rewards", 4, 1e39), "it: rewards holds 1e.39 in transition 4"),
        (changed("actions", (5, 0), np.nan), "it: actions holds nan in transition 5"),
        (changed("actions", (5, 1), 1.5), r"the action holds 1.5 at index \(5, 1\), .* in \[-1, 1\]; clip or convert"),
        (changed("terminations", 2, 0.5), "it: terminations holds 0.5, not 0 or 1"),
        ({"truncations": GOOD["truncations"][1:]}, r"truncations has shape \(49,\), not \(50,\), as rewards have"),
        ({"rewards": GOOD["rewards"][:, None]}, r"rewards has shape \(50, 1\), not \(n,\)"),
        ({"actions": GOOD["actions"][:, :1]}, r"does not fit StubPlain-v0: its actions have shape \(50, 1\), not"),
        ({"observations": GOOD["observations"][:, :2]}, r"its observations have observation of shape \(50, 2\), not"),
        ({name: column[:0] for name, column in GOOD.items()}, "it is empty: there is no transition in it"),
    ],
)
def test_what_does_not_fit_is_one_line(change, says):
    with pytest.raises(UsageError, match=says) as error:
        rows_of("StubPlain-v0", {**GOOD, **change})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [name for name in GOOD if name != "truncations"])
def test_a_column_that_is_missing(name):
    left = {each: column for each, column in GOOD.items() if each != name}
    with pytest.raises(UsageError, match=f"it has no {name}, but "):
        rows_of("StubPlain-v0", left)


def test_a_discrete_action_that_there_is_not():
    columns = record("CartPole-v1", episodes=1)
    columns["actions"] = columns["actions"] + 1
    with pytest.raises(UsageError, match=r"does not fit CartPole-v1: the action holds 2.0 .* not a whole number in"):
        rows_of("CartPole-v1", columns)


def test_the_digest_is_of_everything():
    again = {name: column.copy() for name, column in reversed(GOOD.items())}
    assert Recording("it", GOOD).sha256 == Recording("there", again).sha256, "not of its name, nor of an order"
    again["rewards"][7] = np.nextafter(again["rewards"][7], np.inf)
    digests = {digest_arrays(columns) for columns in (GOOD, again, {"a": GOOD["rewards"]}, {"b": GOOD["rewards"]})}
    digests |= {
        digest_arrays({"a": GOOD["rewards"].reshape(5, 10)}),
        digest_arrays({"a": GOOD["rewards"].view(np.int64)}),
    }
    assert len(digests) == 6
    turned = {"a": np.arange(6).reshape(2, 3)}
    assert digest_arrays(turned) == digest_arrays({"a": np.asfortranarray(turned["a"])})


def test_rows_of_another_run_need_the_same_spaces_and_steps():
    spaces = spaces_of("StubPlain-v0")
    rows = Recording("it", GOOD).to_rows(spaces, 1, 0.9)
    stored = StoredReplay("runs/a", rows, spaces, 1, 0.9)
    assert stored.to_rows(spaces, 1, 0.5) is rows, "of a single step, no reward is discounted"
    for change, asked, says in (
        ({}, (spaces_of("StubScaled-v0"), 1, 0.9), r"it has actions from \[-1.0, -1.0\], and StubScaled-v0 has"),
        ({}, (spaces_of("Pendulum-v1"), 1, 0.9), "runs/a does not fit: it has "),
        ({}, (spaces, 3, 0.9), "holds returns of n_step=1 with discount=0.9, and this run has n_step=3"),
        ({"n_step": 3}, (spaces, 3, 0.5), "n_step=3 with discount=0.9, and this run has n_step=3 with discount=0.5"),
        ({"rows": rows[:0]}, (spaces, 1, 0.9), "runs/a is empty"),
        ({"rows": rows * np.float32(np.nan)}, (spaces, 1, 0.9), "with numbers that are not finite"),
    ):
        with pytest.raises(UsageError, match=says):
            stored._replace(**change).to_rows(*asked)


def recorded_game(games=30):
    """Noughts and crosses, with what was legal, and nothing legal at the end."""
    env, rng, rows = LegalNoughts(), np.random.default_rng(0), []
    for seed in range(games):
        obs, over = env.reset(seed=seed)[0], False
        while not over:
            legal = env.action_masks()
            action = 1 + rng.choice(np.flatnonzero(legal))
            next_obs, reward, over, _, _ = env.step(action)
            rows.append((obs, action, reward, next_obs, over, legal, env.action_masks() & (not over)))
            obs = next_obs
    names = ["observations", "actions", "rewards", "next_observations", "terminations"]
    names += ["action_masks", "next_action_masks"]
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def test_legal_actions_are_columns():
    columns = recorded_game()
    spaces = spaces_of("LegalNoughts-v0").with_legal_actions()
    rows = Recording("it", columns).to_rows(spaces, 2, 0.9)
    batch = unpack(rows, np.arange(len(rows)), spaces.sizes)
    np.testing.assert_array_equal(batch.obs[:, 9:], batch.obs[:, :9] == 0)
    goes_on = batch.discount > 0
    assert goes_on.any()
    np.testing.assert_array_equal(batch.next_obs[goes_on, 9:], batch.next_obs[goes_on, :9] == 0)
    np.testing.assert_array_equal(batch.next_obs[~goes_on, 9:], 1)
    without = {name: column for name, column in columns.items() if "masks" not in name}
    for changed, says in (
        (without, "it has no action_masks, but"),
        (
            {**columns, "action_masks": columns["action_masks"][:, :4]},
            r"it does not fit LegalNoughts-v0: it has bool\[",
        ),
        ({**columns, "action_masks": 0 * columns["action_masks"]}, "it: action_masks allow no action in a state that"),
        ({**columns, "next_action_masks": 0 * columns["next_action_masks"]}, "it: next_action_masks allow no action"),
    ):
        with pytest.raises(UsageError, match=says):
            Recording("it", changed).to_rows(spaces, 1, 0.9)
