"""scripts/set_up.py: an environment for any Python that fits, and one line for everything that can be wrong."""

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "set_up.py"
MINE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def load():
    spec = importlib.util.spec_from_file_location("set_up", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def script(monkeypatch, tmp_path):
    """The script as a module, in a folder with lock files; installing is only written down."""
    module = load()
    monkeypatch.chdir(tmp_path)
    for name in (*module.LOCKS.values(), "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    module.done = []

    def make_anew(folder):
        shutil.rmtree(folder, ignore_errors=True)
        module.done.append("made anew")
        fake_environment(folder)

    monkeypatch.setattr(module, "make_anew", make_anew)
    monkeypatch.setattr(module, "install", lambda folder, lock: module.done.append(lock))
    return module


def fake_environment(folder, version=MINE):
    """A folder that looks like a virtual environment with pip, of this version."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(f"#!/bin/sh\necho {version}\n")
    (folder / "bin" / "python").chmod(0o755)
    (folder / "bin" / "pip").write_text(f"#!{folder.absolute()}/bin/python\n")


def calls(script, stamp=".train", *, asked=False):
    """What one call does."""
    script.done.clear()
    script.main(Path(".venv") / stamp, asked)
    return script.done


TRAIN, EVERYTHING = "requirements-train.lock", "requirements.lock"


def test_what_is_there_is_used(script):
    assert calls(script) == ["made anew", TRAIN]
    assert calls(script) == []
    assert calls(script, ".installed") == [EVERYTHING]
    assert calls(script) == [], "it has what training needs"
    Path(TRAIN).write_text("another")
    assert calls(script) == [TRAIN]
    assert calls(script, asked=True) == []


def no_python(folder):
    (folder / "bin" / "python").unlink()
    (folder / "bin" / "python").symlink_to("/nowhere/python3")


def no_pip(folder):
    (folder / "bin" / "pip").unlink()


def of_another_python(folder):
    shutil.rmtree(folder)
    fake_environment(folder, "3.9")


def of_another_folder(folder):
    (folder / "bin" / "pip").write_text("#!/elsewhere/.venv/bin/python\n")


def removed(folder):
    shutil.rmtree(folder)


@pytest.mark.parametrize("broken", [no_python, no_pip, of_another_python, of_another_folder, removed])
def test_what_is_broken_is_made_anew(script, broken):
    calls(script)
    for stamp in (".train", ".installed"):  # half made, or finished before it broke
        Path(".venv", stamp).unlink(missing_ok=True)
        broken(Path(".venv"))
        assert calls(script, stamp) == ["made anew", script.LOCKS[stamp]]
        assert calls(script, stamp) == []


def test_a_finished_environment_whose_python_has_gone_or_changed_is_made_anew(script):
    """A system was upgraded, or the folder was moved."""
    for broken in (no_python, of_another_python):
        calls(script)
        stamp = Path(".venv/.train").read_text()
        broken(Path(".venv"))
        Path(".venv/.train").write_text(stamp)
        assert calls(script) == ["made anew", TRAIN]
    Path("elsewhere").mkdir()
    for name in (".venv", *script.LOCKS.values(), "pyproject.toml"):
        Path(name).rename(Path("elsewhere", name))
    os.chdir("elsewhere")
    assert calls(script) == ["made anew", TRAIN]


def test_another_python_is_used_only_if_it_is_asked_for(script, monkeypatch):
    other = next(fits for fits in script.FITS if fits != MINE)
    fake_environment(Path(".venv"), other)
    Path(".venv/.train").write_text(script.mark(Path(".venv/.train"), other))
    assert calls(script) == []
    monkeypatch.setattr(sys, "version_info", (3, 6, 9, "final", 0))
    assert calls(script) == [], "an old python3 does not matter to an environment that is there"
    monkeypatch.undo()


def test_another_python_that_is_asked_for_makes_it_anew(script):
    other = next(fits for fits in script.FITS if fits != MINE)
    fake_environment(Path(".venv"), other)
    Path(".venv/.train").write_text(script.mark(Path(".venv/.train"), other))
    assert calls(script, asked=True) == ["made anew", TRAIN]


def test_after_a_failure_the_next_call_goes_on(script, monkeypatch):
    calls(script, ".installed")
    Path(EVERYTHING).write_text("another")
    working = script.install

    def fail(folder, lock):
        raise script.Wrong("no network")

    monkeypatch.setattr(script, "install", fail)
    for _ in range(2):
        with pytest.raises(script.Wrong):
            calls(script, ".installed")
    monkeypatch.setattr(script, "install", working)
    assert calls(script, ".train") == [TRAIN], "the environment may be half of each"
    assert calls(script, ".installed") == [EVERYTHING]


# What pip printed when this was done to it, and the line that we make of it.
PIP_SAYS = {
    "packages cannot be fetched": "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by "
    "'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection>: Failed to establish a new connection: "
    "[Errno -3] Temporary failure in name resolution')': /simple/uv/\n"
    "ERROR: Could not find a version that satisfies the requirement uv==0.13.8 (from versions: none)\n"
    "ERROR: No matching distribution found for uv==0.13.8\n",
    "there is no wheel of absl-py==99.5.1 for Python": "ERROR: Could not find a version that satisfies the requirement "
    "absl-py==99.5.1 (from versions: 0.1.0, 2.5.1)\nERROR: No matching distribution found for absl-py==99.5.1\n",
    "numpy==2.5.0 of the.lock is not for Python": "ERROR: Ignored the following versions that require a different "
    "python version: 2.5.0 Requires-Python >=3.12\nERROR: Could not find a version that satisfies the requirement "
    "numpy==2.5.0 (from versions: 2.4.6)\nERROR: No matching distribution found for numpy==2.5.0\n",
    "a package is not the one that the.lock names": "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE "
    "REQUIREMENTS FILE. If you have updated the package versions, please update the hashes.\n",
    "the.lock is damaged": "ERROR: Invalid requirement: 'absl-py=2.5.1' (from line 1 of requirements-train.lock)\n"
    "Hint: = is not a valid operator. Did you mean == ?\n",
    "the disk is full": "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
    "packages could not be installed: ERROR: something new": "WARNING: old\nERROR: something new\nmore\n",
}


@pytest.mark.parametrize("line", PIP_SAYS)
def test_what_pip_says_becomes_one_line(script, line):
    why = script.why(PIP_SAYS[line], "the.lock", Path(".venv/set-up.log"))
    assert why.startswith(line)
    assert "\n" not in why


def installs(script, tmp_path, answers):
    """Install with a pip and a uv that end like this; gives their calls, and the error."""
    module, called, folder = load(), [], tmp_path / ".venv"
    folder.mkdir(exist_ok=True)

    def said(command):
        program = "uv" if command[0].endswith("uv") else "pip"
        what = " link" if "--editable" in command else " for uv" if command[-1].endswith("uv.lock") else ""
        called.append(program + what)
        return answers.get(called[-1], (0, ""))

    module.said = said
    try:
        module.install(folder, TRAIN)
    except module.Wrong as wrong:
        return called, str(wrong)
    return called, None


def test_uv_installs_and_pip_does_where_uv_cannot(script, tmp_path):
    assert installs(script, tmp_path, {}) == (["pip for uv", "uv", "uv link"], None)
    for broken in ("pip for uv", "uv", "uv link"):
        called, wrong = installs(script, tmp_path, {broken: (2, "error: no such mirror")})
        assert wrong is None
        assert called[-2:] == ["pip", "pip link"]
    called, wrong = installs(script, tmp_path, {"uv": (2, ""), "pip": (1, "ERROR: no")})
    assert wrong.startswith("packages could not be installed: ERROR: no")
    offline = (1, PIP_SAYS["packages cannot be fetched"])
    assert installs(script, tmp_path, {"pip for uv": offline})[0] == ["pip for uv"], (
        "a second try would wait as long again"
    )
    assert "uv==" in (tmp_path / ".venv" / "uv.lock").read_text()
    assert (tmp_path / ".venv" / "uv.lock").read_text().count("==") == 1


@pytest.mark.parametrize("wrong", [(3, 6), (3, 10), (3, 15), (4, 0)])
def test_a_python_that_does_not_fit_is_told_what_to_install(script, monkeypatch, wrong):
    """With a command that exists there: for Debian, what apt knows; on a Mac, brew; else uv or python.org."""
    monkeypatch.setattr(sys, "version_info", (*wrong, 0, "final", 0))
    said = {}
    monkeypatch.setattr(script, "said", lambda command: said.get(command[0], (127, "")))
    monkeypatch.setattr(shutil, "which", lambda name: None)

    def way_out():
        with pytest.raises(
            script.Wrong, match=rf"needs Python 3\.11 to 3\.14, and \S+ is Python {wrong[0]}\.{wrong[1]}"
        ) as e:
            script.check_this_python(f"{wrong[0]}.{wrong[1]}")
        assert "\n" not in str(e.value)
        return str(e.value).rpartition(": ")[2]

    monkeypatch.setattr(sys, "platform", "darwin")
    assert "PYTHON=python3.13" in way_out()
    monkeypatch.setattr(sys, "platform", "linux")
    assert way_out() == "uv python install 3.13, then make PYTHON=python3.13"
    said["apt-cache"] = 0, "python3\npython3.9\npython3.9-venv\npython3.13\n"
    assert way_out() == "uv python install 3.13, then make PYTHON=python3.13", "there is no venv for it"
    said["apt-cache"] = 0, "python3\npython3.11\npython3.11-venv\npython3.12\npython3.12-venv\n"
    assert way_out() == "apt-get install python3.12 python3.12-venv, then make PYTHON=python3.12"
    said["python3.11"] = 0, "3.11\n"
    assert way_out() == "make PYTHON=python3.11"


def test_it_can_be_read_by_an_old_python():
    ast.parse(SCRIPT.read_text(), feature_version=(3, 6))


def make(tmp_path, *argv, before=""):
    """`make .venv/.train` where nothing is installed yet, by a python3 that runs this first."""
    for name in ("Makefile", TRAIN, EVERYTHING, "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", dirs_exist_ok=True)
    (tmp_path / "sitecustomize.py").write_text(before)
    (tmp_path / "python3").write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS")}
    environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    return subprocess.run(
        ["make", "-C", str(tmp_path), *argv, ".venv/.train"], env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("argv", "before", "line"),
    [
        (["PYTHON=no-such-python"], "", "mepg: no-such-python is no Python 3: name one, as in make PYTHON=python3"),
        (["PYTHON=echo"], "", "mepg: echo is no Python 3: name one"),
        ([], "import sys; sys.version_info = (2, 7, 18, 'final', 0)", "mepg: python3 is no Python 3: name one"),
        ([], "import sys; sys.version_info = (3, 9, 2, 'final', 0)", "mepg: this needs Python 3.11 to 3.14, and "),
        ([], "import sys; sys.version_info = (3, 15, 0, 'final', 0)", "mepg: this needs Python 3.11 to 3.14, and "),
        (["PYTHON=python3"], "import sys; sys.modules['ensurepip'] = None", "mepg: "),
    ],
)
def test_make_says_one_line_about_a_python_that_does_not_do(tmp_path, argv, before, line):
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    done = make(tmp_path, *argv, before=before)
    assert done.returncode == 2
    ours, from_make = done.stderr.splitlines()
    assert ours.startswith(line)
    assert "Error 2" in from_make
    assert not (tmp_path / ".venv").exists()
    if "ensurepip" in before:
        assert "cannot make virtual environments" in ours
