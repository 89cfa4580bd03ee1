"""Runs in games with illegal moves, through every room: none is ever made, and all else is as with other runs."""

import json
import subprocess
import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import mepg
from mepg.cli import main
from mepg.envs.env import Env
from mepg.export import convert
from mepg.export.compiled import find_compiler, run_compiled
from mepg.export.onnx import open_session
from mepg.run.session import Session
from mepg.storage.files import read_arrays
from mepg.storage.folder import Folder
from mepg.storage.policy import load_policy
from mepg.training.config import Config
from tests.conftest import all_but_slow, leaves_equal
from tests.envs import games
from tests.run.processes import assert_same_run

GAME = "tests.envs.games:InfoNoughts-v0"
SMALL = ["hidden=16,16", "batch_size=16", "warmup=100"]
# The algorithms that choose among discrete actions.
NAMES = all_but_slow(["dqn", "me-dqn", "qr-dqn", "me-qr-dqn", "sac-discrete", "me-sac-discrete"], ["me-dqn"])


def argv_of(name, out, steps=400):
    sets = [part for setting in SMALL for part in ("--set", setting)]
    return ["train", name, "--env", GAME, "--steps", str(steps), "--eval-every", "200", *sets, "--out", str(out)]


@pytest.fixture(scope="module", params=["me-dqn", "me-sac-discrete"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("legal") / request.param
    assert main(argv_of(request.param, folder)) == 0
    return folder


def test_it_says_what_it_is_for(run):
    assert json.loads((run / "run.json").read_text())["legal_actions"] is True
    spaces = Folder(run).identity().spaces
    assert spaces.sizes.n_legal == 9


def test_it_is_played_verified_and_looked_into(run, capsys):
    assert main(["eval", str(run), "--episodes", "3", "--json", "--env", GAME]) == 0
    returns = json.loads(capsys.readouterr().out)["returns"]
    assert set(returns) <= {-1.0, 0.0, 1.0}
    assert main(["verify", str(run), "--env", GAME]) == 0
    assert "bit for bit" in capsys.readouterr().out
    assert main(["inspect", str(run), "--episodes", "3", "--env", GAME]) == 0
    assert main(["list", str(run)]) == 0


def test_an_exported_policy_takes_what_is_legal(run, tmp_path, capsys):
    forms = ["--onnx", str(tmp_path / "p.onnx"), "--numpy", str(tmp_path / "plain"), "--c", str(tmp_path / "p.h")]
    assert main(["export", str(run), *forms, "--card", str(tmp_path / "card.md"), "--env", GAME]) == 0
    assert "action_masks" in (tmp_path / "card.md").read_text()
    env = Env(GAME)
    policy = load_policy(Folder(run), env.spaces)
    rng = np.random.default_rng(0)
    board = rng.integers(-1, 2, (64, 9)).astype(np.float32)
    board[:, 0] = 0  # something is legal
    rows = np.concatenate([board, board == 0], axis=1).astype(np.float32)
    expected = np.array([env.spaces.scale(policy.act(row)) for row in rows])
    assert (np.take_along_axis(board, expected[:, None] - 1, axis=1) == 0).all()
    session = open_session((tmp_path / "p.onnx").read_bytes())
    assert session.get_inputs()[0].shape[1] == 18
    np.testing.assert_array_equal(session.run(["action"], {"obs": rows})[0], expected)
    assert session.get_modelmeta().custom_metadata_map["obs"] == "action_masks 9:18"
    np.savez(tmp_path / "plain" / "boards.npz", board=board, expected=expected)
    code = "import numpy as np, policy; f = np.load('boards.npz'); act = policy.load_policy(); b = f['board']\n"
    code += "assert (act(b, b == 0) == f['expected']).all() and act(b[0], action_masks=b[0] == 0) == f['expected'][0]"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "plain", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "p.h").read_text()
    assert "#define POLICY_OBS 18" in text
    assert "#define POLICY_OBS_ACTION_MASKS 9 /* action_masks: 9 numbers */" in text
    compiler = find_compiler() or pytest.skip("there is no C compiler")
    source = convert.open_run(Folder(run), GAME)
    np.testing.assert_array_equal(run_compiled(compiler, text, source.sizes, rows, 1)[0][:, 0] + 0, expected)


@pytest.mark.parametrize("envs", [1, 3])
def test_stopped_anywhere_it_ends_with_the_same_bits(envs, tmp_path):
    """The episodes under way are played again up to where they were: no illegal move among those that wait."""
    names = {"env": GAME, "steps": 1_050, "eval_every": 525, "eval_episodes": 2, "envs": envs}
    config = Config.make("me-dqn", [*SMALL, "replay_size=200"], **names)
    for until in (60, 123, 501):
        with Session(config, tmp_path / "stopped") as session:
            assert session.started_at == 0 or any(note.startswith("resumed at step") for note in session.notes)
            assert not any("does not repeat" in note for note in session.notes)
            for record in session:
                if record.step == until:
                    session.stop(15)
    for name in ("stopped", "whole"):
        with Session(config, tmp_path / name) as session:
            list(session)
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_a_run_from_before_does_not_go_on_where_moves_are_illegal(tmp_path, monkeypatch):
    config = Config.make("me-dqn", SMALL, env="tests.envs.games:Corridor-v0", steps=200, eval_every=200)
    monkeypatch.setitem(gymnasium.spec("Corridor-v0").kwargs, "said", lambda *_: None)
    monkeypatch.setitem(gymnasium.spec("Corridor-v0").kwargs, "by", "info")
    with Session(config, tmp_path / "run") as session:
        for record in session:
            if record.step == 50:
                session.stop(15)
    monkeypatch.undo()
    with pytest.raises(
        mepg.UsageError, match=r"it had none of its actions said to be legal, and .* has some now; change"
    ):
        Session(config, tmp_path / "run")


def test_what_goes_wrong_costs_a_line_and_nothing_else(tmp_path, capsys, monkeypatch):
    """Once the environment is mended, the run goes on from its checkpoint."""
    argv = ["train", "me-dqn", "--env", "tests.envs.games:Corridor-v0", "--steps", "120", "--eval-every", "120"]
    argv += ["--checkpoint-every", "40", "--out", str(tmp_path / "run"), "--set", "hidden=8", "--set", "warmup=20"]
    asked = iter(range(10**9))

    def wrong_later(place, at):
        return [place > 0, True, place < 4] if next(asked) < 100 else [0, 0, 0]

    monkeypatch.setitem(gymnasium.spec("Corridor-v0").kwargs, "said", wrong_later)
    assert main(argv) == 1
    monkeypatch.undo()
    said = capsys.readouterr().err
    assert "no action is legal, and its episode goes on: terminate it, or allow an action" in said
    assert "Traceback" not in said
    assert main(argv) == 0
    assert "resumed at step 80" in capsys.readouterr().out


class Counted(gymnasium.Wrapper):
    """Counts moves that were not said to be legal."""

    steps = illegal = 0

    def reset(self, **kwargs):
        obs, info = self.env.reset(**kwargs)
        self.legal = info["action_mask"]
        return obs, info

    def step(self, action):
        self.steps, self.illegal = self.steps + 1, self.illegal + (not self.legal[action - self.action_space.start])
        *result, info = self.env.step(action)
        self.legal = info["action_mask"]
        return *result, info


def check_moves(name, env, steps):
    env = Counted(env)
    spec = replace(mepg.algorithm(name).default_spec, hidden=(16, 16), batch_size=16, warmup=200)
    mepg.algorithm(name)(env=env, spec=spec, seed=0).learn(steps)
    assert (env.steps, env.illegal) == (steps, 0)


@pytest.mark.parametrize("name", NAMES)
def test_no_illegal_move(name):
    check_moves(name, games.InfoNoughts(), 1_500)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["me-dqn", "me-qr-dqn", "me-sac-discrete"])
@pytest.mark.parametrize("make", [games.InfoNoughts, lambda: gymnasium.make("Taxi-v4")], ids=["noughts", "taxi"])
def test_no_illegal_move_in_100_000_steps(name, make, native):
    check_moves(name, make(), 100_000)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("me-dqn", []),
        pytest.param("me-dqn", ["search.how=thompson"], marks=pytest.mark.slow),
        pytest.param("me-qr-dqn", [], marks=pytest.mark.slow),
        ("me-sac-discrete", []),
    ],
)
def test_in_native_code(name, settings, native, tmp_path):
    """It is compared with XLA's before it is used; and it is stopped and goes on."""
    names = {"env": GAME, "steps": 200, "eval_every": 200, "eval_episodes": 2, "envs": 2, "normalize_obs": True}
    config = Config.make(name, [*SMALL, *settings], **names, backend="native")
    for until, path in ((120, "a"), (200, "a"), (200, "b")):
        with Session(config, tmp_path / path) as session:
            for record in session:
                if record.step == until < 200:
                    session.stop(15)
    assert leaves_equal(*(read_arrays(tmp_path / path / "policy.safetensors") for path in "ab"))
