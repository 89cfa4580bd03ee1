"""Every file of a run folder, damaged in every way: the same result, an older checkpoint, or a refusal."""

import random
import shutil

import numpy as np
import pytest

from mepg.envs.env import Env
from mepg.errors import UsageError
from mepg.report.runs import read_run
from mepg.run.inspection import inspect_run, read_inspection, write_inspection
from mepg.run.session import Session
from mepg.storage.files import read_arrays
from mepg.storage.folder import Folder
from mepg.storage.policy import load_policy
from mepg.training.config import Config, SessionOptions
from tests.conftest import leaves_equal
from tests.run import stubs  # noqa: F401  (registers environments)

ENV = "StubPlain-v0"
SETTINGS = ["hidden=4", "batch_size=4", "warmup=50", "replay_size=900", "discount=0.5"]


def config(seed):
    return Config.make("me-sac", SETTINGS, env=ENV, seed=seed, steps=1300, eval_every=500, eval_episodes=1)


def train(path, seed, upto=None):
    with Session(config(seed), path, SessionOptions(checkpoint_every=250)) as session:
        for record in session:
            if record.step == upto:
                session.stop(15)
        return session.notes


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of different seeds, each once finished and once stopped after 1,100 steps: the ring has wrapped."""
    folder = tmp_path_factory.mktemp("whole")
    for seed in (0, 1):
        train(folder / f"finished-{seed}", seed)
        train(folder / f"stopped-{seed}", seed, upto=1100)
        inspected = Folder(folder / f"finished-{seed}")
        write_inspection(inspected, inspect_run(inspected, 1, 0))
    return folder


def files_of(path):
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file() and file.name != ".lock")


def damages(content, others, flips=12):
    """A file's content, damaged: by name."""
    rng = random.Random(0)
    yield "emptied", b""
    yield "missing", None
    content = content.rstrip(b"\n")  # a file of text without its last end of line says the same
    for length in sorted({1, 9, len(content) // 2, len(content) - 1}):
        if 0 < length < len(content):
            yield f"cut to {length}", content[:length]
    for _ in range(flips):
        at, bit = rng.randrange(len(content)), rng.randrange(8)
        yield f"bit {bit} of byte {at}", content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
    yield "longer", content + b"\n1,2,3\n"
    if others is not None:
        yield "another run's", others


def apply(path, content):
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


def each_damage(folder, kind, flips=12):
    """Name, damage and content for every file of a run of this kind."""
    for name in files_of(folder / f"{kind}-0"):
        other = folder / f"{kind}-1" / name
        if name.startswith("events"):  # named after the moment it was made
            other = next((folder / f"{kind}-1").glob("events*"))
        for damage, content in damages((folder / f"{kind}-0" / name).read_bytes(), other.read_bytes(), flips):
            yield name, damage, content


def answers(path, env):
    """All that is ever said about a finished run, by who says it."""
    folder = Folder(path)

    def of(ask):
        try:
            return ask()
        except UsageError:
            return None

    def network():
        policy = load_policy(folder, env.spaces)
        return policy.step, policy.state

    return {
        "report": of(lambda: read_run(path)),
        "policy": of(network),
        "inspection": of(lambda: read_inspection(folder)),
    }


def same(asked, before, after):
    if asked == "report":
        arrays = [(run.steps, run.returns, run.hours) for run in (before, after)]
        rest = [run._replace(steps=None, returns=None, hours=None) for run in (before, after)]
        return leaves_equal(*arrays) and rest[0] == rest[1]
    if asked == "policy":
        return before[0] == after[0] and leaves_equal(before[1], after[1])
    return before == after


def test_a_finished_run_says_what_it_said_or_nothing(runs, tmp_path):
    env, path = Env(ENV), tmp_path / "run"
    shutil.copytree(runs / "finished-0", path)
    whole, noticed = answers(path, env), set()
    assert None not in whole.values()
    for name, damage, content in each_damage(runs, "finished"):
        before = (path / name).read_bytes()
        apply(path / name, content)
        for asked, answer in answers(path, env).items():
            if answer is None:
                noticed.add((name, asked))
            elif (name, damage) == ("result.json", "missing") and asked == "report":
                assert not answer.finished, "without its result it counts as unfinished"
            elif (name, damage) == ("policy.safetensors", "missing") and asked == "policy":
                assert leaves_equal(answer[1], whole["policy"][1]), "the last checkpoint has the same networks"
            elif (name, damage, asked) != ("inspect.json", "missing", "inspection"):
                assert same(asked, whole[asked], answer), f"{name}, {damage}: {asked} says something else"
        (path / name).write_bytes(before)
    assert noticed >= {
        *((name, asked) for name in ("run.json", "result.json", "evaluations.npz") for asked in ("report",)),
        ("run.json", "policy"),
        ("policy.safetensors", "policy"),
        ("inspect.json", "inspection"),
    }


def test_the_noise_in_metrics_is_not_believed_when_it_is_altered(runs, tmp_path):
    for kind in ("finished", "stopped"):
        path = tmp_path / kind
        shutil.copytree(runs / f"{kind}-0", path)
        assert inspect_run(Folder(path), 1, 0).noise.steps
        metrics = path / "metrics.csv"
        metrics.write_text(metrics.read_text().replace("\n1000,", "\n1001,"))
        with pytest.raises(UsageError, match=r"metrics\.csv does not match its checksum"):
            inspect_run(Folder(path), 1, 0)


def finished_alike(path, reference):
    """Whether two finished runs measured and learned the same."""
    ours, theirs = read_run(path), read_run(reference)
    policies = (read_arrays(each / "policy.safetensors") for each in (path, reference))
    return np.array_equal(ours.returns, theirs.returns) and leaves_equal(*policies)


def resume_damaged(runs, tmp_path, chosen):
    path = tmp_path / "run"
    for name, damage, content in chosen:
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(runs / "stopped-0", path)
        apply(path / name, content)
        if name == "run.json" and damage != "missing":
            with pytest.raises(UsageError, match=r"damaged|holds another run"):
                train(path, 0)
            continue
        if name == "run.json":
            with pytest.raises(UsageError, match="holds other files"):
                train(path, 0)
            continue
        notes = train(path, 0)
        assert finished_alike(path, runs / "finished-0"), f"{name}, {damage}: {notes}"
        said = "\n".join(notes)
        if name.startswith("checkpoints/000001100"):
            assert "the checkpoint of step 1,100 is damaged" in said or damage == "missing", f"{name}, {damage}: {said}"
            assert "resumed at step 1,000" in said
        if name == "metrics.csv" and damage != "longer":
            assert "a new one was started" in said, f"{name}, {damage}: {said}"


SAMPLE = [("checkpoints/000001100.json", "emptied"), ("checkpoints/000001100.safetensors", "cut to 9")]


def test_a_stopped_run_goes_on_as_if_nothing_had_been(runs, tmp_path):
    chosen = [each for each in each_damage(runs, "stopped") if each[:2] in SAMPLE]
    assert len(chosen) == len(SAMPLE)
    resume_damaged(runs, tmp_path, chosen)


@pytest.mark.faults
@pytest.mark.parametrize("part", range(4))
def test_every_file_of_a_stopped_run(runs, tmp_path, part):
    resume_damaged(runs, tmp_path, list(each_damage(runs, "stopped", flips=2))[part::4])
