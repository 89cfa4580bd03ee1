"""Every command and every piece of Python in what people read first is carried out, as it stands or shortened."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple

import pytest

from mepg.cli import main
from tests.conftest import all_but_slow

ROOT = Path(__file__).parent.parent
PAGES = [
    "README.md",
    "docs/tutorial.md",
    "docs/commands.md",
    "docs/python.md",
    "docs/coming-from-sb3.md",
    "docs/data.md",
    "docs/export.md",
    "docs/tune.md",
]

BRIEFLY = "--steps 120 --set warmup=100 --eval-every 60 --eval-episodes 1 --set hidden=16,16"

# What would take minutes or hours, and what is run in its place.
SHORTER = {
    "--env HopperBulletEnv-v0 --out runs/hopper": f"--env HopperBulletEnv-v0 --out runs/hopper {BRIEFLY}",
    "--trials 20 --seeds 2 --steps 10000 --set warmup=1000": f"--trials 1 --seeds 1 {BRIEFLY}",
    "--steps 10000 --eval-every 1000 --seed 0": "--steps 120 --eval-every 60 --eval-episodes 1 --seed 0",
    "--steps 3000 --set warmup=0 --eval-every 1000": BRIEFLY.replace("warmup=100", "warmup=0"),
    "--steps 10000 --set warmup=1000": BRIEFLY,
    "--steps 8000 --set warmup=1000 --eval-every 1000": BRIEFLY,
    "--steps 3000 --set warmup=1000 --eval-every 1000": BRIEFLY,
    "--steps 5000 --set warmup=1000 --eval-every 1000": BRIEFLY.replace("120", "180"),
    "--episodes 20": "--episodes 2",
    "table1 --plan smoke": "table1 --plan smoke --only me-ddpg --envs HopperBulletEnv-v0 --seeds 0",
    "table1 --plan desk --dry-run": "table1 --plan desk --dry-run --only me-ddpg --envs HopperBulletEnv-v0",
    "learn(100_000, progress_bar=True)": "learn(20, progress_bar=True)",
    "learn(3_000, progress_bar=True)": "learn(20, progress_bar=True)",
    "learn(1_000, ": "learn(120, ",
    "learn(500)": "learn(20)",
}

# What is not run here, and why that is no loss.
LEFT_OUT = {
    "make train": "what it trains is in README.md's own curve; CI's `make test` uses the environment that it makes",
    "make test": "this",
    "python3 -m venv": "whoever runs this has an environment",
    ". .venv/bin/activate": "the same",
    "pip install": "the same; tests/test_environments.py and others show what is said when an extra is missing",
    "mepg bench": "tests/bench",
    "import rl_zoo3": "tests/api/test_stable_baselines.py",
}


class Block(NamedTuple):
    language: str
    text: str


def blocks(page):
    """The fenced blocks of a page that are sh, python or c, in order."""
    found = re.findall(r"^( *)```(sh|python|c)\n(.*?)^\1```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [Block(language, textwrap.dedent(text)) for _, language, text in found]


def shortened(text):
    for long, short in SHORTER.items():
        text = text.replace(long, short)
    return text


def commands(block):
    text = block.text.replace("\\\n    ", "")
    lines = [line.partition(" #")[0].strip() for line in shortened(text).splitlines()]
    return [line for line in lines if line and not any(line.startswith(start) for start in LEFT_OUT)]


@pytest.mark.parametrize("page", all_but_slow(PAGES, PAGES[:2]))
def test_a_page_does_what_it_says(page, tmp_path, monkeypatch, capsys):
    """From top to bottom, in one folder, as a reader would.

    In a shell the first command and what is not ours, the others in this process: to start one takes most of the time.
    Blocks of Python that follow each other share a process, but no names.
    """
    pytest.importorskip("onnxruntime")
    pytest.importorskip("optuna")
    pytest.importorskip("minari")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")

    def carry_out(*argv):
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode == 0, (argv[-1], done.stdout, done.stderr)
        assert "Traceback" not in done.stderr

    started = False
    for language, together in groupby(blocks(page), lambda block: block.language):
        if language == "c":
            if shutil.which("cc") is None:
                pytest.skip("there is no C compiler")
            Path("main.c").write_text("\n".join(block.text for block in together))
            continue
        if language == "python":
            texts = [shortened(block.text) for block in together if not any(name in block.text for name in LEFT_OUT)]
            alone = [f"exec({text!r}, {{'__name__': '__main__'}})" for text in texts]
            carry_out(sys.executable, "-c", "\n".join(alone))
            continue
        for line in chain.from_iterable(map(commands, together)):
            program, *argv = shlex.split(line)
            if started and program == "mepg":
                assert main(argv) == 0, (line, capsys.readouterr())
            else:
                carry_out("bash", "-c", line)
            started |= program == "mepg"


def test_every_shortcut_is_of_something_that_is_there():
    text = "\n".join(block.text for page in PAGES for block in blocks(page))
    for long in [*SHORTER, *LEFT_OUT]:
        assert long in text, f"{long!r} is in none of {', '.join(PAGES)}"


def test_links_between_pages_and_to_files_lead_somewhere():
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        prose = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)  # a lambda of C++ looks like a link
        for link in re.findall(r"\]\(([^)#\s]+)", prose):
            assert "://" in link or (path.parent / link).exists(), f"{path.relative_to(ROOT)}: {link}"


def test_every_algorithm_has_a_page_and_every_page_is_in_the_site():
    from mepg.algos import algorithms

    index = (ROOT / "docs" / "algorithms" / "index.md").read_text()
    for name, algorithm in algorithms().items():
        suffix = name.removeprefix(algorithm.parent or "")  # me-sac+cdq is there as +cdq
        assert f"`{name}`" in index or f"`{suffix}`" in index, f"add {name} to docs/algorithms/index.md"
    navigation = (ROOT / "mkdocs.yml").read_text()
    for path in (ROOT / "docs").rglob("*.md"):
        assert path.relative_to(ROOT / "docs").as_posix() in navigation, f"add {path.name} to nav in mkdocs.yml"


def test_every_command_is_in_the_documentation():
    from mepg.commands import commands

    page = (ROOT / "docs" / "commands.md").read_text()
    for name in commands():
        assert f"mepg {name}" in page, f"say what `mepg {name}` does in docs/commands.md"


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("latex2mathml")
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    page = (tmp_path / "site" / "algorithms" / "mepg.html").read_text()
    assert "the probability that a unit is dropped" in page, "the table of fields comes from the code"
    assert "critic_gradient" in (tmp_path / "site" / "api.html").read_text()
    assert "<math" in (tmp_path / "site" / "theory.html").read_text(), "equations are typeset"
    outside = re.findall(r'(?:src|href)="(https?://[^"]+)"', page)
    assert all("squidfunk.github.io" in link for link in outside), "nothing is loaded from elsewhere"
