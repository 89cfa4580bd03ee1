"""Videos: real pictures of real simulators, in files that open."""

import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from mepg.cli import main
from mepg.envs.video import Video
from mepg.errors import UsageError

TINY = ["--set", "hidden=8,8", "--set", "batch_size=8", "--set", "warmup=20", "--eval-episodes", "1", "--steps", "30"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A policy that falls over soon."""
    folder = tmp_path_factory.mktemp("films") / "run"
    assert main(["train", "me-ddpg", "--env", "InvertedPendulumBulletEnv-v0", "--out", str(folder), *TINY]) == 0
    return folder


def frames_of(path):
    import imageio_ffmpeg

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-i", str(path), "-f", "rawvideo"]
    raw = subprocess.run([*command, "-pix_fmt", "rgb24", "-"], capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, 240, 320, 3)


@pytest.mark.parametrize("kind", ["mp4", "gif"])
def test_a_film_of_the_first_episode(run, kind, tmp_path):
    """In a process of its own: PyBullet's connections of other tests' environments are not its own."""
    path = tmp_path / f"out.{kind}"
    argv = [sys.executable, "-m", "mepg", "eval", str(run), "--episodes", "2", "--video", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    length = int(text.split("length")[1].split()[0].replace(",", ""))
    assert f"-> {path}" in text
    if kind == "mp4":
        frames = frames_of(path)
        assert len(frames) == length
    else:
        with Image.open(path) as film:
            frames = []
            for i in range(film.n_frames):
                film.seek(i)
                frames.append(np.asarray(film.convert("RGB")))
        assert len(frames) == -(-length // 2), "a GIF shows every second of 60 pictures in a second"
    assert frames[0].shape == (240, 320, 3)
    assert frames[0].std() > 10, "something is to be seen"
    assert np.abs(frames[-1].astype(int) - frames[0]).max() > 50, "and it moves"
    assert list(tmp_path.iterdir()) == [path], "nothing is left lying about"


FILM_MUJOCO = """
import ctypes.util, sys

if sys.argv[1:] == ["no EGL"]:  # and no OSMesa
    ctypes.util.find_library = lambda name: None

import numpy as np
from mepg.errors import UsageError
from mepg.envs.env import Env

try:
    env = Env("Hopper-v5", "rgb_array")
    env.reset(0)
    first = env.render()
    env.step(np.ones(3, np.float32))
    print(first.shape, first.std() > 10, not np.array_equal(first, env.render()))
except UsageError as error:
    print(error)
    if sys.argv[1:]:
        Env("Pendulum-v1", "rgb_array").reset(0)
        Env("Hopper-v5").reset(0)
        print("learns")
"""


def film_mujoco(graphics, *arguments):
    """In a process of its own: MuJoCo looks for a graphics library when it is imported."""
    pytest.importorskip("mujoco")
    env = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL")}
    env |= {} if graphics is None else {"MUJOCO_GL": graphics}
    return subprocess.run(
        [sys.executable, "-c", FILM_MUJOCO, *arguments], env=env, capture_output=True, text=True, check=True
    ).stdout


def test_mujoco_is_filmed_without_a_screen():
    told = film_mujoco(None)
    if "apt-get install libegl1" in told:
        pytest.skip(f"no graphics library on this machine: {told}")
    assert told == "(480, 480, 3) True True\n"


def test_without_a_graphics_library_it_says_what_to_install():
    """OSMesa stands for one that is not there."""
    told = film_mujoco("osmesa")
    if told.startswith("(480"):
        pytest.skip("OSMesa is installed here")
    assert told.startswith("Hopper-v5 cannot be drawn without a screen here (")
    assert told.endswith("on Debian, apt-get install libegl1 libgl1-mesa-dri\n")


def test_filming_without_a_graphics_library_does_not_keep_mujoco_from_learning():
    told = film_mujoco(None, "no EGL")
    assert told == (
        "Hopper-v5 cannot be drawn without a screen here (OSError: there is no EGL and no OSMesa): "
        "on Debian, apt-get install libegl1 libgl1-mesa-dri\nlearns\n"
    )


@pytest.mark.parametrize("kind", ["mp4", "gif"])
def test_a_film_that_failed_leaves_nothing(kind, tmp_path):
    def broken():
        raise RuntimeError

    for fail in (broken, lambda: film.add(broken, 30)):  # around the camera, and in it
        with pytest.raises(RuntimeError), Video(tmp_path / f"out.{kind}") as film:
            film.add(lambda: np.zeros((8, 8, 3), np.uint8), 30)
            fail()
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["mp4", "gif"])
def test_a_film_may_have_any_name(kind, tmp_path):
    path = tmp_path / f"{'😀' * 62}.{kind}"
    with Video(path) as film:
        for _ in range(2):
            film.add(lambda: np.zeros((16, 16, 3), np.uint8), 30)
    assert list(tmp_path.iterdir()) == [path]


def test_pictures_that_a_gif_does_not_show_are_not_taken(tmp_path):
    taken = []

    def take():
        taken.append(len(taken))
        return np.full((8, 8, 3), 20 * len(taken), np.uint8)

    with Video(tmp_path / "out.gif") as film:
        for _ in range(9):
            film.add(take, 60)
    with Image.open(tmp_path / "out.gif") as pictures:
        assert pictures.n_frames == len(taken) == 5
    with pytest.raises(UsageError, match=r"a video must be \.mp4 or \.gif, not 'out\.avi'"):
        Video(tmp_path / "out.avi")


def test_what_cannot_be_shown(run, capsys, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert main(["eval", str(run), "--render"]) == 2
    assert "there is no screen to open a window on ($DISPLAY is not set): use --video" in capsys.readouterr().err
    assert main(["eval", str(run), "--render", "--video", "a.gif"]) == 2
    assert "choose one of them" in capsys.readouterr().err
    assert main(["eval", str(run), "--video", "a.webm"]) == 2
    assert "a video must be .mp4 or .gif" in capsys.readouterr().err


def test_without_ffmpeg_it_says_what_to_install(run, tmp_path):
    hidden = "import sys; sys.modules['imageio_ffmpeg'] = None; from mepg.cli import main; sys.exit(main(sys.argv[1:]))"
    argv = ["eval", str(run), "--episodes", "1", "--video", str(tmp_path / "a.mp4")]
    done = subprocess.run([sys.executable, "-c", hidden, *argv], capture_output=True, text=True)
    assert done.returncode == 2
    assert "an .mp4 needs ffmpeg: pip install 'mepg[video]'; a .gif does not" in done.stderr
