"""Every loader, and --set, with inputs that nobody would write: each ends in the same answer or in a clean error.

A thousand inputs each here; `make test-fuzz` takes a hundred thousand.
"""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
import safetensors.numpy

import mepg
from mepg import algos, cli, flags
from mepg.envs.env import Env
from mepg.envs.vector import make_envs
from mepg.errors import UsageError
from mepg.report.runs import read_run
from mepg.run.inspection import Trace, inspect_run, read_inspection, write_inspection
from mepg.settings import apply_settings, describe, digest
from mepg.storage.checkpoint import Checkpoint, Checkpoints, TimeSpent
from mepg.storage.files import Damaged, checksum, read_arrays, read_sealed, read_sealed_arrays
from mepg.storage.folder import Folder
from mepg.storage.identity import Identity
from mepg.storage.logs import Csv
from mepg.storage.policy import read_state, save_policy
from mepg.training.config import Config
from mepg.training.loop import Loop
from mepg.training.program import Program
from mepg.training.replay import Replay
from mepg.tune.study import Study
from tests.faults import mutants
from tests.run import stubs  # noqa: F401  (registers environments)
from tests.tune.studies import Quick, objective, rising_to, tune

ENV = "StubScaled-v0"
SHALLOW = 0.8  # of the inputs are bytes that were changed; the others are well made, sealed, and wrong inside


class Fuzz:
    """A small run of which every file is there, and one loader for each kind of file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "run"
        settings = ["hidden=4", "batch_size=4", "warmup=8", "replay_size=16", "discount=0.5"]
        self.config = Config.make("me-sac", settings, env=ENV, steps=40, eval_every=20, eval_episodes=2)
        self.folder = Folder(self.path)
        envs, eval_env = make_envs(ENV), Env(ENV)
        self.folder.claim(self.config, envs.spaces).close()
        agent = self.config.build(envs.sizes)
        self.loop = Loop(self.config, Program(self.config, agent, envs.sizes), envs, eval_env, Replay(16, envs.sizes))
        self.template = jax.eval_shape(agent.init, jax.random.key(0))
        self.checkpoints = Checkpoints(self.path, self.config)
        self.columns = ["time/total_timesteps", "train/noise_one_mask", "train/noise_two_masks"]
        metrics = Csv(self.path, self.columns, 0)
        for record in self.loop:
            if record.step == 30:
                self.checkpoints.save(
                    Checkpoint(self.loop.snapshot(), TimeSpent(2.0, 1.0, 1.5), None), self.loop.replay
                )
            metrics.add({"train/noise_one_mask": 0.5}, record.step)
        metrics.close()
        self.snapshot = self.loop.snapshot()
        save_policy(self.folder, Identity(self.config, envs.spaces), self.loop.state, self.loop.step)
        self.folder.write_evaluations(self.config, self.loop.evaluations)
        summary = {"steps": 40, "seconds": 3.0, "eval_seconds": 1.0}
        final = float(np.mean([episode.return_ for episode in self.loop.evaluations[40]]))
        self.folder.finish(self.config, {**summary, "final_return": final})
        found = inspect_run(self.folder, 1, 0)
        few = Trace(*(column[:3] for column in found.some))
        write_inspection(self.folder, found._replace(first=few, some=few))
        self.model = mepg.ME_SAC("MlpPolicy", ENV, learning_starts=8, batch_size=4, policy_kwargs={"net_arch": [4]})
        self.model.learn(12)
        self.model.save(folder / "model")
        self.model.save_replay_buffer(folder / "buffer")
        self.archive, self.buffer = folder / "model.zip", folder / "buffer.npz"
        settings_of_tune = {"algorithm": "me-sac", "env": "Pendulum-v1", "steps": 100, "set": ["hidden=8"], "about": {}}
        (folder / "best.json").write_text(json.dumps(settings_of_tune))
        self.parser = cli.build_parser()
        self.best = folder / "best.json"
        tune(folder / "study", Quick(rising_to), 2)
        self.journal, self.objective = folder / "study" / "journal.log", objective()

    # One loader each: what it reads, and how

    def run_json(self) -> object:
        return self.folder.config()

    def result_json(self) -> object:
        return read_run(self.path)  # and with it `result`

    def evaluations_npz(self) -> object:
        return self.folder.evaluations(self.config)

    def metrics_csv(self) -> object:
        Csv(self.path, self.columns, 20).close()
        return None

    def inspect_json(self) -> object:
        return read_inspection(self.folder)

    def policy(self) -> object:
        return read_state(self.folder, self.config, self.template)

    def checkpoint(self) -> object:
        return self.checkpoints.load(30, self.snapshot, Replay(16, self.loop.replay.sizes))

    def agent_of_checkpoint(self) -> object:
        return self.checkpoints.load_agent(30)

    def model_zip(self) -> object:
        return mepg.load(self.archive).num_timesteps

    def replay_buffer(self) -> object:
        return self.model.load_replay_buffer(self.buffer)

    def tune_journal(self) -> object:
        return Study(self.objective, self.journal.parent, 2, lambda _: None).best()

    def settings_file(self) -> object:
        argv = ["train", "--config", str(self.best)]
        arguments = self.parser.parse_args(argv)
        train = arguments.parser
        before = {action: action.default for action in train._actions}
        try:
            train.set_defaults(**flags.read_settings(self.best, train, None, None))
            arguments = self.parser.parse_args(argv)
        finally:  # for the next one
            for action, default in before.items():
                action.default = default
            train._defaults = {"command": train._defaults["command"], "parser": train}
        if arguments.algorithm is None or arguments.env is None:
            raise SystemExit(2)  # as `train` does
        return Config.make(
            arguments.algorithm, arguments.set, env=arguments.env, **flags.options_from(arguments, Config)
        )


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory):
    base = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path_factory.getbasetemp()  # no disk to wear out
    folder = base / f"mepg-fuzz-{os.getpid()}"
    folder.mkdir()
    yield Fuzz(folder)
    shutil.rmtree(folder)


def reseal(path: Path, data: object) -> None:
    """As someone would who knows how, and means harm."""
    if isinstance(data, dict):
        data.pop("sha256", None)
        data["sha256"] = digest(data)
    path.write_text(json.dumps(data))


# For each loader: the file that is mutated, and what is done so that it gets past the checksums at times.


def sealed_json(path: Path) -> Callable[[random.Random], None]:
    content, data = path.read_bytes(), json.loads(path.read_text())

    def mutate(rng: random.Random) -> None:
        if rng.random() < SHALLOW:
            path.write_bytes(mutants.of_bytes(content, rng))
        else:
            reseal(path, mutants.of_json(data, rng))

    return mutate


def plain(path: Path) -> Callable[[random.Random], None]:
    content = path.read_bytes()
    return lambda rng: (path.write_bytes(mutants.of_bytes(content, rng)), None)[1]


def plain_json(path: Path) -> Callable[[random.Random], None]:
    content, data = path.read_bytes(), json.loads(path.read_text())

    def mutate(rng: random.Random) -> None:
        if rng.random() < SHALLOW:
            path.write_bytes(mutants.of_bytes(content, rng))
        else:
            path.write_text(json.dumps(mutants.of_json(data, rng)))

    return mutate


def json_lines(path: Path) -> Callable[[random.Random], None]:
    content = path.read_bytes()

    def mutate(rng: random.Random) -> None:
        if rng.random() < SHALLOW:
            path.write_bytes(mutants.of_bytes(content, rng))
            return
        lines = content.splitlines()
        at = rng.randrange(len(lines))
        lines[at] = json.dumps(mutants.of_json(json.loads(lines[at]), rng)).encode()
        path.write_bytes(b"\n".join(lines) + b"\n")

    return mutate


@np.errstate(all="ignore")  # numbers that a type does not hold
def strange_arrays(arrays: dict, rng: random.Random) -> dict:
    """Other names, types, shapes and numbers."""
    arrays = dict(arrays)
    name = rng.choice(list(arrays))
    array = arrays.pop(name)
    match rng.randrange(6):
        case 0:
            return arrays
        case 1:
            return {**arrays, rng.choice(("", "x", "../x", name + "x")): array}
        case 2:
            return {**arrays, name: array.astype(rng.choice(("int8", "float64", "bool", "uint32", "float16")))}
        case 3:
            return {**arrays, name: array.reshape(-1)[: rng.randrange(array.size + 1)]}
        case 4:
            return {**arrays, name: array[None]}
        case _:
            strange = array.copy().reshape(-1)
            strange[: rng.randrange(array.size + 1)] = np.array(rng.choice((np.nan, np.inf, -1, 1e30))).astype(
                array.dtype
            )
            return {**arrays, name: strange.reshape(array.shape)}


def arrays_and_manifest(path: Path, manifest: Path, entry: Callable[[str, dict], dict]) -> Callable:
    content, arrays = path.read_bytes(), read_arrays(path)
    whole = read_sealed(manifest)

    def mutate(rng: random.Random) -> None:
        if rng.random() < SHALLOW:
            path.write_bytes(mutants.of_bytes(content, rng))
        else:
            path.write_bytes(safetensors.numpy.save(strange_arrays(arrays, rng)))
        reseal(manifest, dict(entry(checksum(path).sha256, whole) if rng.random() < 0.8 else whole))

    return mutate


def sealed_policy(path: Path) -> Callable[[random.Random], None]:
    from mepg.storage.files import write_sealed_arrays

    content = path.read_bytes()
    arrays, about = read_sealed_arrays(path)

    def mutate(rng: random.Random) -> None:
        if rng.random() < SHALLOW:
            path.write_bytes(mutants.of_bytes(content, rng))
            return
        other = mutants.of_json(about, rng) if rng.random() < 0.3 else about
        write_sealed_arrays(path, strange_arrays(arrays, rng), other if isinstance(other, dict) else {})

    return mutate


def evaluations(fuzz: Fuzz) -> Callable[[random.Random], None]:
    path, result = fuzz.folder.evaluations_file, fuzz.folder.result_file
    content, sealed = path.read_bytes(), read_sealed(result)
    with np.load(path) as file:
        arrays = dict(file)

    def mutate(rng: random.Random) -> None:
        if rng.random() < SHALLOW:
            path.write_bytes(mutants.of_bytes(content, rng))
        else:
            np.savez(path, **{name or "x": array for name, array in strange_arrays(arrays, rng).items()})
        reseal(result, {**sealed, "files": {**sealed["files"], path.name: checksum(path)}})

    return mutate


def archive(fuzz: Fuzz) -> Callable[[random.Random], None]:
    """Nearly all of them end at the archive's own checksums; a few hundred are well made and wrong inside."""
    from mepg.api.files import read_archive, to_archive

    content, (about, arrays) = fuzz.archive.read_bytes(), read_archive(fuzz.archive)

    def mutate(rng: random.Random) -> None:
        if rng.random() > 0.003:
            fuzz.archive.write_bytes(mutants.of_bytes(content, rng))
            return
        other = mutants.of_json(about, rng)
        try:
            strange = strange_arrays(arrays, rng) if rng.random() < 0.3 else arrays
            fuzz.archive.write_bytes(to_archive(other, strange))
        except ValueError:  # NaN, which is not JSON
            fuzz.archive.write_bytes(content)

    return mutate


def mutations(fuzz: Fuzz, loader: str) -> Callable[[random.Random], None]:
    manifest, state = (fuzz.checkpoints.folder / f"000000030.{suffix}" for suffix in ("json", "safetensors"))
    piece = next(fuzz.checkpoints.replay_folder.iterdir())
    match loader:
        case "run_json":
            return sealed_json(fuzz.folder.config_file)
        case "result_json":
            return sealed_json(fuzz.folder.result_file)
        case "inspect_json":
            return sealed_json(fuzz.folder.inspection_file)
        case "checkpoint" | "agent_of_checkpoint":
            return sealed_json(manifest)
        case "checkpoint arrays":
            return arrays_and_manifest(state, manifest, lambda sha256, whole: {**whole, "state": sha256})
        case "checkpoint replay":
            start, stop, _ = read_sealed(manifest)["replay"][0]
            return arrays_and_manifest(piece, manifest, lambda sha256, w: {**w, "replay": [[start, stop, sha256]]})
        case "policy":
            return sealed_policy(fuzz.folder.policy_file)
        case "evaluations_npz":
            return evaluations(fuzz)
        case "metrics_csv":
            return plain(fuzz.folder.metrics_file)
        case "model_zip":
            return archive(fuzz)
        case "replay_buffer":
            return plain(fuzz.buffer)
        case "settings_file":
            return plain_json(fuzz.best)
        case "tune_journal":
            return json_lines(fuzz.journal)
    raise AssertionError(loader)


LOADERS = [
    "run_json",
    "result_json",
    "evaluations_npz",
    "metrics_csv",
    "inspect_json",
    "policy",
    "checkpoint",
    "checkpoint arrays",
    "checkpoint replay",
    "agent_of_checkpoint",
    "model_zip",
    "replay_buffer",
    "settings_file",
    "tune_journal",
]


def is_refused(load: Callable[[], object], what: str) -> bool:
    """Whether there is a clean error, with words; False if it is read. Nothing else may happen."""
    try:
        load()
    except (UsageError, Damaged) as error:
        words = str(error)
    except SystemExit as end:  # the command line's own way to refuse
        words = "refused" if end.code == 2 else ""
    except Exception as error:
        raise AssertionError(f"{what} is neither read nor refused: {error!r}") from error
    else:
        return False
    assert words.strip(), f"{what}: an error without words"
    return True


def throw_at(fuzz: Fuzz, loader: str, count: int, capfd: pytest.CaptureFixture[str]) -> None:
    load = getattr(fuzz, loader.partition(" ")[0])
    load()  # as it is, it can be read
    files = {path: path.read_bytes() for path in fuzz.path.parent.rglob("*") if path.is_file()}
    mutate, rng = mutations(fuzz, loader), random.Random(f"{loader} 0")
    refused = 0
    for number in range(count):
        mutate(rng)
        refused += is_refused(load, f"input {number} of {loader}")
    for path, content in files.items():
        path.write_bytes(content)
    load()
    capfd.readouterr()
    # Where lines can be lost or changed, other checks see it: test_damage.py, and a trial's score in test_tune.py.
    assert refused > (0.5 * count if loader not in ("metrics_csv", "tune_journal") else -1), f"{refused} of {count}"


@pytest.mark.parametrize("loader", LOADERS)
def test_a_thousand_inputs(fuzz, loader, capfd):
    throw_at(fuzz, loader, 1_000, capfd)


@pytest.mark.fuzz
@pytest.mark.parametrize("loader", LOADERS)
def test_a_hundred_thousand_inputs(fuzz, loader, capfd):
    throw_at(fuzz, loader, 100_000, capfd)


def set_anything(count: int) -> None:
    specs = [algorithm.spec for algorithm in algos.algorithms().values()]
    known = [[f"{name}={text}" for name, text in describe(spec).items()] for spec in specs]
    rng, refused = random.Random(0), 0
    for number in range(count):
        which = rng.randrange(len(specs))
        settings = [mutants.of_text(rng.choice(known[which]), rng) for _ in range(rng.choice((1, 1, 2)))]
        refused += is_refused(lambda w=which, s=settings: hash(apply_settings(specs[w], s)), f"{number}: {settings!r}")
    assert 0.5 * count < refused < count


def test_a_thousand_settings(capsys):
    set_anything(1_000)
    for text in ("", "=", "hidden", "hidden=", "hidden=٣", "dropout.p=nan", "hidden=" + "9" * 5_000, "\ud800=1"):
        assert cli.main(["show", "me-sac", "--set", text]) in (0, 2)
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.fuzz
def test_a_hundred_thousand_settings():
    set_anything(100_000)
