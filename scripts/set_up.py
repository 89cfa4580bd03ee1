"""Make or mend the virtual environment that `make` works in: set_up.py FOLDER/.train or FOLDER/.installed [--asked].

It runs on every Python from 3.6 on, so that an old one can say what is needed instead. What goes wrong is one line and
exit status 2, and the next call goes on from there. With `--asked`, an environment of another Python is made anew.
"""

import hashlib
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

FITS = ["3.13", "3.12", "3.11", "3.14"]  # which Pythons; those that PyBullet can be had for come first
LOCKS = {".train": "requirements-train.lock", ".installed": "requirements.lock"}  # the second has all of the first
COSTS = {".train": "half a minute or more, 1 GB", ".installed": "a minute or two, 2.3 GB"}
OFFLINE = "packages cannot be fetched"
NETWORK = "NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|Connection ?Error"


class Wrong(Exception):
    """One line: the cause, and the way out."""


def main(stamp, asked):
    """Do nothing if the environment is as its lock file says, else everything that it takes."""
    folder, mine, there = stamp.parent, "{}.{}".format(*sys.version_info), version(stamp.parent / "bin" / "python")
    stamps = [folder / name for name in LOCKS][: 1 + list(LOCKS).index(stamp.name)]
    if (there == mine or not asked) and all(read(one) == mark(one, there) for one in stamps):
        return
    check_this_python(mine)
    lock = LOCKS[stamp.name]
    print(
        f"Setting up {folder} with Python {mine} and the exact versions of {lock}: once, {COSTS[stamp.name]}",
        flush=True,
    )
    # Made by another Python, or only half, or copied from another folder.
    if there != mine or str(folder.absolute()) not in read(folder / "bin" / "pip")[:500]:
        make_anew(folder)
    for one in (folder / name for name in LOCKS if (folder / name).exists()):
        one.unlink()  # from here to the end, it is half made
    install(folder, lock)
    for one in stamps:
        one.write_text(mark(one, mine))


def mark(stamp, python):
    """What a stamp says: everything that the environment was made from."""
    about = [python, stamp.absolute(), read(Path(LOCKS[stamp.name])), read(Path("pyproject.toml"))]
    return hashlib.sha256("\n".join(map(str, about)).encode()).hexdigest()


def check_this_python(mine):
    """Whether an environment can be made with the Python that runs this."""
    if mine not in FITS or platform.python_implementation() != "CPython":
        is_here = f"{platform.python_implementation()} {mine}".replace("CPython", "Python")
        raise Wrong(f"this needs Python 3.11 to 3.14, and {sys.executable} is {is_here}: {another_python()}")
    if not all(map(importlib.util.find_spec, ("ensurepip", "venv"))):
        package = f"python{'3' if sys.executable.endswith('python3') else mine}-venv"
        get = (
            f"apt-get install {package}"
            if shutil.which("apt-get")
            else f"install its package for venv; or {another_python()}"
        )
        raise Wrong(f"{sys.executable} cannot make virtual environments, because it is without ensurepip: {get}")


def another_python():
    """How to get a Python that fits, on this system."""
    for name in (f"python{fits}" for fits in FITS):
        if version(name) == name[len("python") :]:
            return f"{name} is here too: make PYTHON={name}"
    if sys.platform == "darwin":
        return "brew install python@3.13, then make PYTHON=python3.13"
    known = said(["apt-cache", "pkgnames", "python3"])[1].split()
    for name in (f"python{fits}" for fits in FITS):
        if {name, f"{name}-venv"} <= set(known):
            return f"apt-get install {name} {name}-venv, then make PYTHON={name}"
    get = (
        "uv python install 3.13"
        if shutil.which("uv")
        else "from python.org, or with uv (docs.astral.sh/uv): uv python install 3.13"
    )
    return f"{get}, then make PYTHON=python3.13"


def make_anew(folder):
    """An environment with nothing but pip."""
    try:
        if folder.exists() or folder.is_symlink():
            shutil.rmtree(str(folder))
    except OSError as error:
        raise Wrong(f"{folder} has to be made anew, and cannot be removed: {error}") from None
    status, words = said([sys.executable, "-m", "venv", str(folder)])
    if status:
        raise Wrong(f"{folder} could not be made: {last_line(words)}")


def install(folder, lock):
    """What the lock names, and this checkout: by uv, which is fast, else by pip, which knows mirrors and proxies."""
    exactly = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement"]
    linked = ["--no-deps", "--no-build-isolation", "--editable", "."]
    python, log = str(folder / "bin" / "python"), folder / "set-up.log"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "install"]
    uv = [str(folder / "bin" / "uv"), "pip", "install", "--quiet", "--python", python]
    uv_alone = folder / "uv.lock"
    uv_alone.write_text("".join(re.findall(r"^uv==.*\n(?: .*\n)*", read(Path(lock)), re.MULTILINE)))
    log.write_text("")

    def trouble(command):
        status, words = said(command)
        with log.open("a") as file:
            file.write("$ {}\n{}\n".format(" ".join(command), words))
        return why(words, lock, log) if status else None

    wrong = trouble([*pip, *exactly, str(uv_alone)])
    if wrong is None:
        wrong = trouble([*uv, *exactly, lock]) or trouble([*uv, *linked])
    if wrong is not None and not wrong.startswith(OFFLINE):
        wrong = trouble([*pip, *exactly, lock, "--no-compile"]) or trouble([*pip, *linked])
    if wrong is not None:
        raise Wrong(wrong)


def why(words, lock, log):
    """One line about what pip said."""
    here = "Python {}.{} on {} {}".format(*sys.version_info[:2], platform.system(), platform.machine())
    missing = re.search(r"No matching distribution found for (\S+)", words)
    if re.search(NETWORK, words):
        return f"{OFFLINE} ({log} says why): connect, and give the same command again, which goes on from there"
    if "No space left on device" in words:
        return "the disk is full: make room, and give the same command again, which goes on from there"
    if missing and "require a different python version" in words:
        return f"{missing.group(1)} of {lock} is not for {here}: use another Python, or make lock"
    if missing:
        return f"there is no wheel of {missing.group(1)} for {here}: docs/machines.md says which machines have all"
    if "DO NOT MATCH THE HASHES" in words:
        return f"a package is not the one that {lock} names ({log} says which): git checkout {lock}, or another index"
    if "--require-hashes mode" in words or "Invalid requirement" in words:
        return f"{lock} is damaged ({log} says where): git checkout {lock}"
    return f"packages could not be installed: {last_line(words)} ({log} has all of it)"


def version(python):
    """Major and minor version of a Python; empty if it does not run."""
    status, words = said([str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    return "" if status else words.strip()


def said(command):
    """A program's exit status, and what it printed."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    except OSError as error:
        return 127, str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def read(path):
    """A file's text; empty if there is none."""
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def last_line(words):
    """The last error, if one is called so, else the last line."""
    lines = [line for line in words.splitlines() if line.strip()] or ["it said nothing"]
    return ([line for line in lines if line.startswith(("ERROR", "Error", "error"))] or lines)[-1].strip()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), "--asked" in sys.argv)
    except Wrong as wrong:
        sys.stderr.write(f"mepg: {wrong}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
