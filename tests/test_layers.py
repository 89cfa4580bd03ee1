"""Imports point one way only."""

import ast
from pathlib import Path

import mepg

ROOT = Path(mepg.__file__).parent
ORDER = [
    "words", "errors", "settings", "jax_defaults", "system", "signals", "process", "core", "algos", "native", "envs",
    "training", "storage", "run", "scheduler", "report",
    "paper", "display", "bench", "export", "tune", "api", "flags", "commands", "cli", "__main__",
]  # fmt: skip
OUTSIDE = {"core": {"jax", "optax"}, "algos": {"jax", "optax"}}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ([f"mepg.{alias.name}" for alias in node.names] if node.module == "mepg" else [node.module])


def layer(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_imports_point_one_way():
    for path in ROOT.rglob("*.py"):
        here = layer(path)
        if here == "__init__":
            continue
        for name in imported(path):
            if name.startswith("mepg.") and name != "mepg.__version__":
                there = name.split(".")[1]
                assert ORDER.index(there) <= ORDER.index(here), f"{path.relative_to(ROOT)} imports {name}"


def test_the_core_knows_only_arrays():
    import sys

    for path in [*(ROOT / "core").rglob("*.py"), *(ROOT / "algos").rglob("*.py")]:
        allowed = OUTSIDE[layer(path)] | {"mepg"}
        for name in imported(path):
            top = name.partition(".")[0]
            assert top in allowed or top in sys.stdlib_module_names, f"{path.relative_to(ROOT)} imports {name}"
            assert top not in {"time", "os", "logging", "pathlib", "argparse"}, f"{path.relative_to(ROOT)}: {name}"


def calls(path):
    """Every call in a file: the function as it is written, and the keywords."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}


def test_nothing_that_is_read_can_run_code():
    forbidden = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "code", "runpy"}
    for path in ROOT.rglob("*.py"):
        assert not forbidden & set(imported(path)), path
        for function, keywords in calls(path):
            assert function not in {"eval", "exec", "compile", "__import__", "os.system", "yaml.load"}, path
            if function in {"np.load", "np.savez", "np.save", "numpy.load"}:
                assert keywords.get("allow_pickle") == "False", f"{path}: {function}"
            if function.startswith("subprocess."):
                assert "shell" not in keywords, path


def test_the_core_keeps_nothing_between_calls():
    """No module of it has a list, dict or set that code could change, nor `global`."""
    for path in (ROOT / "core").rglob("*.py"):
        tree = ast.parse(path.read_text())
        assert not any(isinstance(node, ast.Global) for node in ast.walk(tree)), path
        for node in tree.body:
            value = getattr(node, "value", None) if isinstance(node, ast.Assign | ast.AnnAssign) else None
            mutable = isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)
            mutable |= isinstance(value, ast.Call) and ast.unparse(value.func) in {"list", "dict", "set", "bytearray"}
            assert not mutable, f"{path}: {ast.unparse(node)}"


def test_training_opens_no_file():
    for path in (ROOT / "training").rglob("*.py"):
        assert not {"io", "pathlib", "shutil", "tempfile", "safetensors"} & set(imported(path)), path
        assert not any(function.split(".")[-1] in {"open", "write", "savez", "load"} for function, _ in calls(path)), (
            path
        )


def test_storage_knows_no_environment():
    """Only the description of one: observations and actions."""
    for path in (ROOT / "storage").rglob("*.py"):
        assert {name for name in imported(path) if name.startswith("mepg.envs")} <= {"mepg.envs.spaces"}, path
        assert not any(name.partition(".")[0] == "gymnasium" for name in imported(path)), path


def test_nothing_is_longer_than_can_be_read():
    """No file over 400 lines, no function over 60."""
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        assert len(text.splitlines()) <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno - node.lineno < 60, f"{path}: {node.name}"


def test_the_report_draws_what_it_is_given():
    """It knows nothing of the paper; nor does a run."""
    for room in ("report", "training", "storage", "run", "envs", "scheduler"):
        for path in (ROOT / room).rglob("*.py"):
            assert not any(name.startswith("mepg.paper") for name in imported(path)), path


# Modules without a test file of their own name, and why.
WITHOUT_A_MIRROR = {
    "bench/peer": "runs where other libraries are installed: make bench",
}


def only_data(path):
    """Whether a module has neither functions nor classes, as algorithms that are specs: tests/core tries every one."""
    return not any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.walk(ast.parse(path.read_text())))


def test_tests_mirror_the_package():
    """A module's tests are found by its name: tests/ROOM/test_MODULE.py."""
    tests, lacking = Path(__file__).parent, {}
    for path in ROOT.rglob("*.py"):
        module = path.relative_to(ROOT).with_suffix("")
        mirror = tests / module.with_name(f"test_{module.name}.py")
        if module.name != "__init__" and not mirror.exists() and not only_data(path):
            lacking[module.as_posix()] = mirror.relative_to(tests.parent).as_posix()
    missing = {file for module, file in lacking.items() if module not in WITHOUT_A_MIRROR}
    assert not missing, f"a module with functions or classes has a file of tests; write {', '.join(sorted(missing))}"
    assert lacking.keys() == WITHOUT_A_MIRROR.keys(), "WITHOUT_A_MIRROR names a module that has tests, or is gone"
