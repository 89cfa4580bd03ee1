"""What a model accepts has an effect, or is refused by name: no instruction is silently ignored."""

import ast
import copy
import inspect
import io
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mepg
from mepg.algos import algorithms
from mepg.api import arguments, unsupported
from mepg.api.arguments import ARGUMENTS, apply_arguments
from mepg.api.logger import Logger
from mepg.api.model_config import RUN_OPTIONS
from mepg.core.spec import Temperature
from tests.api.models import OBS, make, states_equal
from tests.run.processes import tensorboard

# Parameters that change nothing in Stable-Baselines3 either, for policies and replay buffers such as ours.
WITHOUT_EFFECT = {
    ("Model.predict", "episode_start"),  # recurrent policies
    ("Model.load_replay_buffer", "truncate_last_traj"),  # hindsight
}


def functions(tree, prefix=""):
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node


def test_every_parameter_is_read():
    unread = set()
    for file in Path(arguments.__file__).parent.glob("*.py"):
        for name, function in functions(ast.parse(file.read_text())):
            if name.split(".")[-1].startswith("_") and not name.endswith("__init__"):
                continue
            read = {node.id for body in function.body for node in ast.walk(body) if isinstance(node, ast.Name)}
            given = {a.arg for a in (*function.args.args, *function.args.kwonlyargs)} - {"self", "cls"}
            unread |= {(name, argument) for argument in given - read if not argument.startswith("__")}
    assert unread == WITHOUT_EFFECT


def test_every_argument_of_the_constructor_is_one_of_a_spec_or_is_read():
    parameters = set(inspect.signature(mepg.Model).parameters) - set(ARGUMENTS) - {"kwargs"}
    of_a_run = {option.name for option in RUN_OPTIONS}
    assert of_a_run >= {"normalize_obs", "threads", "backend", "actor_obs", "data", "data_share"}
    assert parameters == of_a_run | {
        "policy", "env", "n_envs", "spec", "tensorboard_log", "verbose", "seed", "device", "_init_setup_model", "tuned",
    }  # fmt: skip
    for name, value in {"_init_setup_model": False, "device": "cuda", "policy": "CnnPolicy"}.items():
        with pytest.raises(mepg.UsageError, match=name):
            mepg.ME_SAC(**{name: value})


@pytest.mark.parametrize("name", ARGUMENTS)
def test_every_argument_of_a_spec_arrives_there(name):
    with pytest.raises(mepg.UsageError, match=f"^{name}=<object"):
        mepg.ME_SAC(**{name: object()})


# Truth, not identity


@pytest.mark.parametrize("said", [False, np.False_, 0, 0.0, np.int64(0), np.float32(0), "", [], np.array([False])])
@pytest.mark.parametrize("form", ["function", "object"])
def test_anything_false_stops(trained, said, form):
    class Says:
        def on_step(self):
            return said

    copied = copy.copy(trained)
    copied.learn(9, callback=Says() if form == "object" else lambda *_: said)
    assert copied.num_timesteps == 1


@pytest.mark.parametrize("said", [None, True, np.True_, 1, np.float32(0.5), "yes"])
def test_anything_else_goes_on(trained, said):
    assert copy.copy(trained).learn(3, callback=lambda *_: said).num_timesteps == 3


def test_an_answer_that_is_neither(trained):
    with pytest.raises(mepg.UsageError, match="a callback returned a ndarray, which is neither true nor false"):
        copy.copy(trained).learn(3, callback=lambda *_: np.array([True, False]))


def test_numpy_scalars_are_numbers_everywhere(tmp_path):
    settings = {"normalize_obs": np.True_, "threads": np.int64(1), "backend": np.str_("xla"), "n_envs": np.int32(2)}
    model = make(**settings, seed=np.uint8(3), verbose=np.int64(0), gradient_steps=np.int64(2))
    model.learn(np.int64(34), log_interval=np.int8(4), reset_num_timesteps=np.True_, progress_bar=np.False_)
    assert (model.n_envs, model.seed, model.spec.updates_per_step, model.num_timesteps) == (2, 3, 1, 34)
    model.save(tmp_path / "m")
    assert mepg.load(tmp_path / "m").spec == model.spec
    env = model.get_env()
    assert env.get_attr("spec", np.int64(1)) == [env.get_attr("spec")[1]]
    assert env.get_attr("spec", np.array([1])) == [env.get_attr("spec")[1]]
    assert model.q_samples(OBS, [0.0, 0.0], n=np.int64(3)).shape == (3,)


def test_numpy_scalars_in_a_whole_spec(tmp_path):
    spec = replace(mepg.ME_SAC.default_spec, critics=np.int64(2), hidden=[np.int64(8)], discount=np.float64(0.5))
    model = mepg.ME_SAC("MlpPolicy", "StubScaled-v0", spec=spec, seed=0, backend="xla")
    assert model.spec == replace(mepg.ME_SAC.default_spec, critics=2, hidden=(8,), discount=0.5)
    model.save(tmp_path / "m")
    assert mepg.load(tmp_path / "m").spec == model.spec
    with pytest.raises(mepg.UsageError, match="critics must be a whole number"):
        mepg.ME_SAC(spec=replace(mepg.ME_SAC.default_spec, critics=np.float64(2.5)))


# Stochastic means stochastic


@pytest.mark.parametrize("name", ["SAC", "TD3", "sac-discrete", "dqn"])
def test_drawn_actions_differ_if_the_policy_is_stochastic(name):
    env = "CartPole-v1" if "-discrete" in name or name == "dqn" else "StubScaled-v0"
    model = make(getattr(mepg, name, None) or mepg.algorithm(name), env=env, backend="xla")
    obs = model.observation_space.sample()
    drawn = {bytes(model.predict(obs)[0]) for _ in range(40)}
    assert (len(drawn) > 1) == (name in ("SAC", "sac-discrete"))
    assert len({bytes(model.predict(obs, deterministic=True)[0]) for _ in range(5)}) == 1
    if name == "sac-discrete":
        actions, _ = model.predict(np.tile(obs, (300, 1)))
        assert 30 < actions.sum() < 270, "a new policy is nearly uniform"


@pytest.mark.parametrize("name", [name for name in algorithms() if "sac" in name])
def test_every_kind_of_sac_has_an_entropy_coefficient(name):
    spec = algorithms()[name].spec
    assert apply_arguments(spec, {"ent_coef": 0.2}, 1) == replace(spec, temperature=Temperature(initial=0.2, lr=None))
    assert apply_arguments(spec, {"ent_coef": "auto_0.5"}, 1).temperature.initial == 0.5


# Files and copies


def test_load_takes_other_values_by_either_name(trained, tmp_path):
    trained.save(tmp_path / "m")
    for given in {"custom_objects": {"learning_rate": 1e-5}}, {"learning_rate": 1e-5}:
        assert mepg.load(tmp_path / "m", **given).learning_rate == 1e-5
    both = mepg.ME_SAC.load(tmp_path / "m", custom_objects={"gamma": 0.5, "tau": 0.5}, gamma=0.7)
    assert (both.gamma, both.tau) == (0.7, 0.5)
    assert mepg.load(tmp_path / "m", custom_objects={"seed": 5}).seed == 5
    zoo = {"learning_rate": 0.0, "lr_schedule": lambda _: 0.0, "clip_range": lambda _: 0.0}  # what it always gives
    assert mepg.load(tmp_path / "m", custom_objects=zoo).spec == trained.spec
    with pytest.raises(mepg.UsageError, match=r"learning_rate=0\.0: .*lr must be in"):
        mepg.load(tmp_path / "m", env="StubScaled-v0", custom_objects=zoo)
    with pytest.raises(mepg.UsageError, match="set_random_seed is not an argument: everything follows from the seed"):
        mepg.load(tmp_path / "m", custom_objects={"set_random_seed": 1})
    with pytest.raises(mepg.UsageError, match="did you mean 'learning_rate'"):
        mepg.load(tmp_path / "m", custom_objects={"learning_rat": 1e-5})
    with pytest.raises(mepg.UsageError, match="custom_objects is a dictionary of arguments"):
        mepg.load(tmp_path / "m", custom_objects=["learning_rate"])
    with pytest.raises(mepg.UsageError, match="force_reset=False: a model always begins new episodes"):
        mepg.load(tmp_path / "m", force_reset=False)
    with pytest.raises(mepg.UsageError, match="force_reset=False"):
        copy.copy(trained).set_env("StubScaled-v0", force_reset=False)
    with pytest.raises(mepg.UsageError, match="device='cuda'"):
        trained.set_parameters(trained.get_parameters(), device="cuda")
    with pytest.raises(mepg.UsageError, match=r"exclude=\['spec'\]: a model's file holds all"):
        trained.save(tmp_path / "n", exclude=["replay_buffer", "spec"])
    assert not (tmp_path / "n.zip").exists()


def test_a_file_is_not_blamed_for_what_was_asked_of_it(trained, tmp_path):
    trained.save(tmp_path / "m")
    for given, field in {
        ("policy_kwargs", "hidden=8,8 there, 4 here"): {"policy_kwargs": {"net_arch": [4]}},
        ("n_critics", "critics=1 there, 2 here"): {"policy_kwargs": {"n_critics": 2}},
        ("normalize_obs", "normalize_obs=False there, True here"): {"normalize_obs": True},
    }.items():
        with pytest.raises(mepg.UsageError, match="holds other networks than were asked for") as error:
            mepg.load(tmp_path / "m", **field)
        assert given[1] in str(error.value)
        assert "damaged" not in str(error.value)


def test_as_many_environments_as_were_asked_for(tmp_path):
    model = make(n_envs=4, backend="xla").learn(60)
    model.save(tmp_path / "m")
    assert mepg.load(tmp_path / "m").n_envs == 4
    assert mepg.load(tmp_path / "m", env="StubScaled-v0").get_env().num_envs == 4
    again = mepg.load(tmp_path / "m", env="StubScaled-v0", n_envs=3)
    assert again.get_env().num_envs == again.n_envs == 3
    assert again.learn(6).num_timesteps == 6
    again.set_env("StubScaled-v0")
    assert again.get_env().num_envs == 3
    one = again.get_env()._envs.original[0]
    with pytest.raises(mepg.UsageError, match="n_envs=3 makes copies of an environment by its id"):
        mepg.load(tmp_path / "m", env=one, n_envs=3)
    assert mepg.load(tmp_path / "m", env=one).n_envs == 1


def test_the_versions_that_it_was_saved_with(trained, tmp_path, capsys):
    trained.save(tmp_path / "m")
    mepg.load(tmp_path / "m", print_system_info=True)
    saved, loaded = capsys.readouterr().out.splitlines()
    assert saved.startswith("saved with python ")
    assert loaded.startswith("loaded with python ")
    assert "jax " in saved


def test_steps_are_counted_on_after_a_file_as_before(tmp_path):
    model = make(backend="xla").learn(40).learn(20)
    assert model.num_timesteps == 20
    model.save(tmp_path / "m")
    again = mepg.load(tmp_path / "m", env="StubScaled-v0")
    assert again.num_timesteps == copy.deepcopy(model).num_timesteps == 20
    assert again.learn(10, reset_num_timesteps=False).num_timesteps == 30
    assert again._learner.training.step == 70


def test_a_copy_learns_for_itself(trained):
    before = trained.get_parameters()
    copied = copy.copy(trained).learn(20)
    assert not states_equal(copied, trained)
    np.testing.assert_array_equal(
        before["actor"]["params"]["0"]["w"], trained.get_parameters()["actor"]["params"]["0"]["w"]
    )
    assert trained.num_timesteps == 60


def test_a_pickle_says_what_to_use_instead(trained):
    with pytest.raises(TypeError, match=r"a model cannot be pickled: model\.save\(path\)"):
        pickle.dumps(trained)
    trained.save(file := io.BytesIO())
    assert states_equal(mepg.load(file), trained)


# Logs


def test_each_call_of_learn_has_a_log_of_its_own(tmp_path):
    model = make(tensorboard_log=tmp_path, backend="xla", learning_starts=2)
    model.learn(5).learn(5).learn(5, reset_num_timesteps=False)
    model.learn(5, tb_log_name="other").learn(5, tb_log_name="other", reset_num_timesteps=False)
    assert {path.name for path in tmp_path.iterdir()} == {"ME_SAC_1", "ME_SAC_2", "other_1"}


def test_what_is_recorded_is_written(tmp_path, capsys):
    logger = Logger(tmp_path / "log", verbose=1)
    for name, value in {"f32": np.float32(1.5), "i64": np.int64(2), "array": np.array(3.0), "text": "hello"}.items():
        logger.record(f"a/{name}", value)
    logger.record("a/quiet", 1.0, exclude="stdout")
    logger.record("a/shown", 1.0, exclude=("tensorboard",))
    logger.record_mean("a/mean", np.float32(4), exclude=("tensorboard", "stdout"))
    logger.dump(7)
    logger.close()
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("f32", "i64", "array", "hello", "shown"))
    assert "quiet" not in shown
    assert "mean" not in shown
    assert sorted(tensorboard(tmp_path / "log")) == ["a/array", "a/f32", "a/i64", "a/quiet"]


@pytest.mark.parametrize(("verbose", "expected"), [(0, ""), (1, "info\nwarn\n"), (2, "debug\ninfo\nwarn\n")])
def test_messages_have_levels(verbose, expected, capsys):
    logger = Logger(verbose=verbose)
    logger.debug("debug")
    logger.info("info")
    logger.warn("warn")
    assert capsys.readouterr().out == expected


def test_noise_as_people_write_it():
    spec = algorithms()["td3"].spec

    class OrnsteinUhlenbeckActionNoise:
        _mu, _sigma = np.zeros(1), np.ones(1)

    for given in 0.1, np.float32(0.1).item(), np.array([0.1]), np.array([0.1, 0.1]), [0.1, 0.1], np.array(0.1):
        assert apply_arguments(spec, {"action_noise": given}, 1).exploration.std == pytest.approx(0.1)
    for given in OrnsteinUhlenbeckActionNoise(), "loud", [0.1, 0.2], np.array([]), {}:
        with pytest.raises(
            mepg.UsageError, match=r"give its standard deviation, or a NormalActionNoise|noise needs mean 0"
        ):
            apply_arguments(spec, {"action_noise": given}, 1)


def test_none_is_as_if_it_were_left_out(trained, tmp_path):
    """Of every argument: a script's own default is often None."""
    trained.save(tmp_path / "m")
    names = {*inspect.signature(mepg.Model).parameters} - {"policy", "env", "device", "kwargs", "_init_setup_model"}
    again = mepg.load(tmp_path / "m", **dict.fromkeys(names))
    assert (again.spec, again.seed, again.n_envs) == (trained.spec, trained.seed, trained.n_envs)
    every = dict.fromkeys((*arguments.POLICY_KWARGS, *unsupported.POLICY_KWARGS))
    assert mepg.ME_SAC(policy_kwargs=every).spec == mepg.ME_SAC.default_spec
    for name in ("net_arhc", 5):
        with pytest.raises(mepg.UsageError, match="unknown key of policy_kwargs"):
            mepg.ME_SAC(policy_kwargs={name: None})


def test_what_would_fail_while_it_learns_is_refused_at_once(trained):
    for verbose, kept in (True, 1), (np.True_, 1), (None, 0), (np.int64(2), 2):
        assert mepg.ME_SAC(verbose=verbose).verbose == kept
    for name, wrong in ("verbose", "x"), ("verbose", -1), ("tensorboard_log", 5), ("tensorboard_log", b"logs"):
        with pytest.raises(mepg.UsageError, match=name):
            mepg.ME_SAC(**{name: wrong})
        with pytest.raises(mepg.UsageError, match=name):
            setattr(trained, name, wrong)
    for logger in None, 5, object(), "stdout":
        with pytest.raises(mepg.UsageError, match="a logger has the methods record and dump"):
            trained.set_logger(logger)
    with pytest.raises(mepg.UsageError, match="noise is normal"):
        mepg.TD3(action_noise=True)
