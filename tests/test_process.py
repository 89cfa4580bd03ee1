"""The process is the user's: what the library finds set there stays as it is, and does not change what it computes."""

import json
import os
import subprocess
import sys

import pytest

from tests.run.processes import PATH

TRAIN = ["train", "me-sac", "--env", "Pendulum-v1", "--steps", "40", "--eval-episodes", "1", "--log", "csv"]
TINY = ["--set", "warmup=20", "--set", "hidden=8,8", "--set", "batch_size=8"]


def run(argv, *, cwd, **variables):
    env = {**os.environ, "PYTHONPATH": PATH, **variables}
    env = {name: value for name, value in env.items() if value is not None}
    return subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=300)


def mepg(*argv, cwd, **variables):
    return run([sys.executable, "-m", "mepg", *argv], cwd=cwd, **variables)


# Each setting of a process that others may have made, and that ours must leave alone.
USE = """
import json, logging, os, signal, sys, tempfile, warnings
import gymnasium, jax, matplotlib, numpy  # what they change when they are imported is theirs
import pybullet_envs_gymnasium, rich.progress, tensorboardX


def everything():
    return {
        "jax": {name: str(value) for name, value in jax.config.values.items()},
        "environ": dict(os.environ),
        "signals": {str(number): str(signal.getsignal(number)) for number in signal.valid_signals()},
        "warnings": [str(entry) for entry in warnings.filters],
        "numpy": {**numpy.geterr(), "printing": str(numpy.get_printoptions())},
        "numpy's own chance": str(numpy.random.get_state()[1][:5]),
        "matplotlib": {name: str(value) for name, value in dict.items(matplotlib.rcParams)},
        "path": list(sys.path),
        "hooks": [str(hook) for hook in (sys.excepthook, sys.displayhook, sys.unraisablehook)],
        "tracing": [str(sys.gettrace()), str(sys.getprofile()), sys.getrecursionlimit(), sys.getswitchinterval()],
        "logging": [logging.root.level, [str(handler) for handler in logging.root.handlers], logging.root.disabled],
        "streams": [id(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "files": [os.readlink(f"/proc/self/fd/{number}") for number in range(3)],
        "folder": os.getcwd(),
        "cores": sorted(os.sched_getaffinity(0)),
    }


before = everything()
import mepg

assert everything() == before, "by import"
tiny = dict(learning_starts=20, batch_size=8, policy_kwargs=dict(net_arch=[8, 8]), seed=0)
model = mepg.ME_SAC("MlpPolicy", "Pendulum-v1", **tiny)
model.learn(30, progress_bar=True)
action, _ = model.predict(model.observation_space.sample())
model.q_posterior(model.observation_space.sample(), action)
with tempfile.TemporaryDirectory() as folder:
    model.save(f"{folder}/model")
    mepg.ME_SAC.load(f"{folder}/model", env="Pendulum-v1").learn(5)
mepg.ME_DDPG("MlpPolicy", "InvertedPendulumBulletEnv-v0", **tiny).learn(30)
after = everything()
changed = {
    kind: [before[kind], after[kind]] if not isinstance(before[kind], dict) else
    {name: [before[kind].get(name), after[kind].get(name)] for name in before[kind] | after[kind]
     if before[kind].get(name) != after[kind].get(name)}
    for kind in before if before[kind] != after[kind]
}
print(json.dumps(changed))
"""


@pytest.mark.slow
def test_the_library_leaves_every_setting_of_the_process_as_it_was(tmp_path):
    # JAX's cache as a user finds it: the one that tests share would hide that ours is set.
    without = {name: None for name in os.environ if name.startswith("JAX_")}
    done = run([sys.executable, "-c", USE], cwd=tmp_path, **without, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {}


def answers(*commands, cwd, **variables):
    """Of several commands in one process: what each says with --json."""
    code = (
        "import json, sys; from mepg.cli import main; sys.exit(any([main(argv) for argv in json.loads(sys.argv[1])]))"
    )
    argv = json.dumps([[*command, "--json"] for command in commands])
    done = run([sys.executable, "-c", code, argv], cwd=cwd, **variables)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


RUN = [*TRAIN, *TINY, "--out", "run"]
LOOK = [
    ["eval", "run", "--episodes", "1"],
    ["inspect", "run", "--episodes", "1"],
    ["params", "--env", "Pendulum-v1"],
    ["export", "run", "--numpy", "numpy"],
]


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory):
    """A short run in a process where nothing is set, and what is found in it."""
    folder = tmp_path_factory.mktemp("plain")
    return folder / "run", answers(RUN, *LOOK, cwd=folder)


@pytest.fixture(scope="module")
def plain(looked_at):
    return looked_at[0]


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({"JAX_ENABLE_X64": "1"}, marks=pytest.mark.slow, id="64 bits"),
        pytest.param(
            {
                "JAX_NUMPY_DTYPE_PROMOTION": "strict",
                "JAX_NUMPY_RANK_PROMOTION": "raise",
                "JAX_THREEFRY_PARTITIONABLE": "0",
                "JAX_DEFAULT_PRNG_IMPL": "rbg",
                "JAX_DEFAULT_MATMUL_PRECISION": "bfloat16",
            },
            id="all others",
        ),
    ],
)
def test_settings_of_jax_do_not_change_a_bit(looked_at, variables, tmp_path):
    plain, found = looked_at
    ours = answers(RUN, *LOOK, cwd=tmp_path, **variables)
    for name in ("policy.safetensors", "evaluations.npz"):
        assert (tmp_path / "run" / name).read_bytes() == (plain / name).read_bytes()
    assert ours[1:-1] == found[1:-1], "but for the run and the export, which measure times"


def test_64_bits_that_are_set_in_python(tmp_path):
    """Also where others have set it between two calls; and a user's own computation keeps it, in a callback too."""
    code = """
import jax, jax.numpy as jnp, mepg, numpy as np
tiny = dict(learning_starts=20, batch_size=8, policy_kwargs=dict(net_arch=[8, 8]), seed=0)
kinds = set()
def callback(variables, _):
    kinds.add(str(jnp.arange(3.0).dtype))
def learned(*, wide):
    model = mepg.ME_SAC("MlpPolicy", "Pendulum-v1", **tiny)
    jax.config.update("jax_enable_x64", wide)
    model.learn(30, callback=callback)
    jax.config.update("jax_enable_x64", False)
    return model.predict(np.ones(3), deterministic=True)[0]
assert learned(wide=False) == learned(wide=True)
assert kinds == {"float32", "float64"}, kinds
"""
    done = run([sys.executable, "-c", code], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("platform", ["cuda", pytest.param("nonsense", marks=pytest.mark.slow)])
@pytest.mark.parametrize("argv", [[*TRAIN, "--out", "new"], ["eval", "{run}"], ["inspect", "{run}"], ["params"]])
def test_a_platform_that_is_not_there_is_one_line(plain, platform, argv, tmp_path):
    argv = [part.format(run=plain) for part in argv]
    done = mepg(*argv, cwd=tmp_path, JAX_PLATFORMS=platform)
    said = f"mepg: JAX_PLATFORMS asks for '{platform}', which JAX cannot use here: cpu is always there\n"
    assert (done.returncode, done.stderr) == (2, said)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("backend", "first"),
    [("nonsense", 2)]
    + [
        pytest.param(*more, marks=pytest.mark.slow)
        for more in ((None, 0), ("module://matplotlib_inline.backend_inline", 1), ("TkAgg", 3))
    ],
)
def test_pictures_do_not_need_the_backend_that_is_set(plain, backend, first, tmp_path):
    """Nor the style: a .matplotlibrc may ask for LaTeX, which is not there."""
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n")
    commands = [["plot", str(plain)], ["report", str(plain)], ["inspect", str(plain), "--episodes", "1"], RUN]
    answers(*commands[first:], *commands[:first], cwd=tmp_path, MPLBACKEND=backend)
    assert (tmp_path / "run" / "curve.png").read_bytes() == (plain / "curve.png").read_bytes()


def test_what_train_says_to_do_next_can_be_typed(tmp_path):
    """Into a shell, though the folder's name has a space in it."""
    done = mepg(*TRAIN, *TINY, "--out", "my runs/first", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.strip().startswith("next")]
    assert line.split(maxsplit=1)[1].endswith("eval 'my runs/first'")
    shown = mepg("export", "my runs/first", "--numpy", "numpy", "--json", cwd=tmp_path)
    data = json.loads(shown.stdout)
    assert (data["seed"], data["step"]) == (0, 40)
