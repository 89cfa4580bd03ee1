"""Which code computes a run: chosen once, written down, and kept."""

import copy
import os
import re
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import mepg
from mepg.cli import main
from mepg.envs.vector import make_envs
from mepg.errors import UsageError
from mepg.native import build, library
from mepg.native.check import Disagrees
from mepg.run.session import Session
from mepg.storage.files import read_arrays
from mepg.storage.folder import Folder
from mepg.training import native_program
from mepg.training.assembly import assemble, make_program
from mepg.training.config import Config
from tests.conftest import leaves_equal
from tests.training.recordings import record

ENV, STEPS = "Pendulum-v1", 60
SETTINGS = ["hidden=16,16", "batch_size=16", "warmup=30"]
CONFIG = Config.make("me-ddpg", SETTINGS, env=ENV, steps=STEPS, eval_every=STEPS, eval_episodes=1, backend="auto")
NATIVE, XLA = (replace(CONFIG, backend=backend) for backend in ("native", "xla"))


def go(config, path, until=STEPS):
    """One session; returns its notes."""
    with Session(config, path) as session:
        for record in session:
            if record.step == until < STEPS:
                session.stop(15)
        return session.notes


def no_compiler(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build.shutil, "which", lambda name: None)


def test_what_auto_came_to_is_what_is_stored(native, tmp_path):
    assert go(CONFIG, tmp_path / "a", until=50) == []
    assert Folder(tmp_path / "a").config() == NATIVE
    assert Folder(tmp_path / "a").versions()["compiler"] == build.compiler_version()
    assert go(CONFIG, tmp_path / "a") == ["resumed at step 50"]
    assert (
        Folder(tmp_path / "a").summary_if_finished(CONFIG)
        == Folder(tmp_path / "a").summary_if_finished(NATIVE)
        is not None
    )
    with pytest.raises(UsageError, match="backend=native there, xla here"):
        Session(XLA, tmp_path / "a")


def test_a_run_that_was_begun_with_xla_goes_on_with_it(native, tmp_path):
    go(XLA, tmp_path / "a", until=50)
    assert go(CONFIG, tmp_path / "a") == ["resumed at step 50"]
    assert Folder(tmp_path / "a").config() == XLA
    assert XLA.fingerprint != NATIVE.fingerprint


def test_a_native_run_cannot_go_on_without_a_compiler(native, tmp_path, monkeypatch):
    go(CONFIG, tmp_path / "a", until=50)
    no_compiler(monkeypatch)
    for config in (CONFIG, NATIVE):
        with pytest.raises(UsageError, match=r"there is no C\+\+ compiler; install"):
            Session(config, tmp_path / "a")


def test_without_a_compiler_xla_is_used_and_it_says_what_to_install(tmp_path, monkeypatch):
    no_compiler(monkeypatch)
    (note,) = go(CONFIG, tmp_path / "a", until=50)
    assert "XLA" in note
    assert "install g++" in note
    assert go(CONFIG, tmp_path / "a") == ["resumed at step 50"]  # it has been said


def test_native_without_a_compiler_writes_nothing(tmp_path, monkeypatch, capsys):
    no_compiler(monkeypatch)
    sets = [part for setting in SETTINGS for part in ("--set", setting)]
    argv = ["train", "me-ddpg", "--env", ENV, "--out", str(tmp_path / "a"), "--backend", "native", *sets]
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "there is no C++ compiler" in said
    assert not (tmp_path / "a").exists()
    argv[argv.index("native")] = "cuda"
    assert main(argv) == 2
    assert "backend must be auto, native or xla, not cuda" in capsys.readouterr().err


def test_who_says_no_compiler_is_not_told_to_install_one(tmp_path):
    assert os.environ["CXX"] == ""
    assert go(CONFIG, tmp_path / "a", until=50) == []
    with pytest.raises(UsageError, match="CXX is set to nothing"):
        assemble(NATIVE, make_envs(ENV))


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo program.cpp:1: error: no good; exit 1", "failed: program.cpp:1: error: no good"),
        ('test "$1" = --version || sleep 3000', "did not finish within"),
        (
            'for i; do test "$o" = -o && echo "int x;" | g++ -x c++ -shared -o "$i" -; o=$i; done; exit 0',
            "lacks what the program has",
        ),
    ],
)
def test_a_bad_compiler_costs_a_line(script, reason, native, tmp_path, monkeypatch):
    path = tmp_path / "c++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    monkeypatch.setenv("CXX", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "_timeout", lambda: 2)
    envs = make_envs(ENV)
    loop = assemble(CONFIG, envs)
    assert loop.config == XLA
    assert reason in loop.note
    assert "\n" not in loop.note
    with pytest.raises(UsageError, match=reason):
        assemble(NATIVE, envs)


def test_a_primitive_without_c_plus_plus_is_named(native):
    envs = make_envs(ENV)
    agent = CONFIG.build(envs.sizes)
    own = agent._replace(exploit=lambda state, obs: jnp.linalg.qr(agent.exploit(state, obs))[0])
    program, note = make_program(CONFIG, own, envs.sizes)
    assert program.backend == "xla"
    assert note == "computing with XLA, not with native code: there is no C++ for qr"
    with pytest.raises(UsageError, match=r"no C\+\+ for qr; --backend xla"):
        make_program(NATIVE, own, envs.sizes)


def test_a_table_of_constants_is_no_hindrance(native):
    envs = make_envs(ENV)
    agent, table = CONFIG.build(envs.sizes), np.linspace(-1, 1, 11, dtype=np.float32)

    def nearest(state, obs):
        """The policy's action, as one of a table."""
        places = jnp.abs(agent.exploit(state, obs) - jnp.asarray(table)).argmin(axis=1, keepdims=True)
        return jnp.asarray(table)[places]

    program, note = make_program(NATIVE, agent._replace(exploit=nearest), envs.sizes)
    assert (program.backend, note) == ("native", "")
    assert np.isin(program.exploit(program.init(), np.ones((1, 3), np.float32)), table).all()


STAGES = {
    "lowering": (library, "lower"),
    "fusion": (library, "Fusion"),
    "assigning": (library, "BufferAssignment"),
    "emitting": (library, "program"),
    "loading": (library, "library"),
    "comparing": (native_program, "compare"),
}


@pytest.mark.parametrize("kind", [TypeError, KeyError, RecursionError])
@pytest.mark.parametrize("stage", STAGES)
def test_whatever_fails_costs_a_line(stage, kind, native, monkeypatch):
    def fails(*_, **__):
        raise kind("two\nlines")

    monkeypatch.setattr(library.Compiled, "checked", False)
    monkeypatch.setattr(*STAGES[stage], fails)
    envs = make_envs(ENV)
    program, note = make_program(CONFIG, CONFIG.build(envs.sizes), envs.sizes)
    assert program.backend == "xla"
    assert re.fullmatch(r"computing with XLA, not with native code: .*two.{1,2}lines.*", note), note
    with pytest.raises(UsageError, match=r"--backend native cannot be used: .*two.{1,2}lines"):
        make_program(NATIVE, CONFIG.build(envs.sizes), envs.sizes)


def test_on_several_cores_it_learns_the_same_bits(native, tmp_path):
    """Wide enough for threads to share the work."""
    settings = [*SETTINGS, "hidden=256,64", "batch_size=64"]
    config = Config.make("me-sac", settings, env=ENV, steps=STEPS, eval_every=STEPS, eval_episodes=1, backend="native")
    for threads in (1, 2, 3):
        go(replace(config, threads=threads), tmp_path / str(threads))
    one, *others = (read_arrays(tmp_path / name / "checkpoints" / f"{STEPS:09d}.safetensors") for name in "123")
    assert all(leaves_equal(one, other) for other in others)


def test_a_library_is_checked_once(native, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compared, compare = [], native_program.compare
    monkeypatch.setattr(native_program, "compare", lambda *given, **more: compared.append(1) or compare(*given, **more))
    envs = make_envs(ENV)
    for _ in range(2):
        assert assemble(CONFIG, envs).config == NATIVE
    assert len(compared) == 3  # learning, exploring, exploiting
    for note in tmp_path.rglob("*.checked"):
        note.write_text("another library's")
    assemble(CONFIG, envs)
    assert len(compared) == 6


def test_a_library_that_computes_something_else_is_not_used(native, tmp_path, monkeypatch):
    def wrong(*given, **more):
        raise Disagrees("call 1, array 0 of 1: 1.0e-01 of its size away from XLA's")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native_program, "compare", wrong)
    loop = assemble(CONFIG, make_envs(ENV))
    assert loop.config == XLA
    (source,) = tmp_path.rglob("wrong-*.cpp")
    assert str(source) in loop.note
    assert "run(" in source.read_text()
    assert not list(tmp_path.rglob("*.checked"))


def test_a_model_in_native_code(native, tmp_path):
    """Learn, look, change, copy, save, load, go on."""
    model = mepg.ME_DDPG(env=ENV, seed=1, spec=CONFIG.spec).learn(60)
    assert model._learner.program.backend == model._learner.config.backend == "native"
    obs = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
    one_by_one = np.array([model.predict(row, deterministic=True)[0] for row in obs])
    np.testing.assert_allclose(model.predict(obs, deterministic=True)[0], one_by_one, atol=1e-5)
    assert np.isfinite(model.q_posterior(obs, one_by_one)).all()

    twin = copy.deepcopy(model)
    assert leaves_equal(twin.get_parameters(), model.get_parameters())
    assert leaves_equal(twin.learn(20).get_parameters(), model.learn(20).get_parameters())
    before = model.get_parameters()
    model.learn(5)
    assert not leaves_equal(model.get_parameters(), before)
    model.set_parameters(before)
    assert leaves_equal(model.get_parameters(), before)

    model.save(tmp_path / "model")
    alone = mepg.load(tmp_path / "model")
    assert (alone._learner.program.backend, alone._learner.config.backend) == ("xla", "xla")  # it only acts
    assert leaves_equal(alone.get_parameters(), before)
    np.testing.assert_allclose(alone.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])
    again = mepg.load(tmp_path / "model", env=ENV).learn(40)
    assert again._learner.config.backend == "native"


def test_a_policy_that_sees_a_part(native, tmp_path):
    config = replace(NATIVE, env="tests.envs.own:Reach-v0", actor_obs=("gripper", "observation"), normalize_obs=True)
    go(config, tmp_path / "a", until=50)
    assert go(config, tmp_path / "a") == ["resumed at step 50"]
    go(config, tmp_path / "b")
    one, other = (read_arrays(tmp_path / name / "policy.safetensors") for name in "ab")
    assert leaves_equal(one, other)
    assert one["agent.agent.actor.params.0.w"].shape == (8, 16)


@pytest.mark.parametrize("share", [None, 0.5])
def test_data_in_native_code(native, tmp_path, share):
    """The same after an interruption, and what XLA computes from the same transitions."""
    np.savez(tmp_path / "data.npz", **record(ENV, episodes=1))
    config = replace(NATIVE, data=str(tmp_path / "data.npz"), data_share=share)
    go(config, tmp_path / "a", until=50)
    assert go(config, tmp_path / "a") == ["resumed at step 50"]
    go(config, tmp_path / "b")
    go(replace(config, backend="xla"), tmp_path / "xla")
    one, other, xla = (read_arrays(tmp_path / name / "policy.safetensors") for name in ("a", "b", "xla"))
    assert leaves_equal(one, other)
    go(NATIVE, tmp_path / "without")
    without = read_arrays(tmp_path / "without" / "policy.safetensors")
    for name in one:
        np.testing.assert_allclose(one[name], xla[name], rtol=1e-3, atol=1e-5)
    assert not leaves_equal(one, without)
