"""The files and functions that the documentation points to are there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILE = r"`((?:[\w-]+/)+\w+\.py)`"
SUFFIXES = (".npz", ".csv", ".json")
NAME = r"`([A-Za-z_][\w.]*)`"


def located(path):
    """A source file as the docs name it: from the package, or from the repository."""
    return next((found for found in (ROOT / "src" / "mepg" / path, ROOT / path) if found.is_file()), None)


@cache
def names(path):
    """All names in a file: functions at any depth, classes and what they hold, whatever is assigned or asked for."""
    found = set()

    def visit(node, prefix):
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                found.update({child.name, f"{prefix}{child.name}"})
                inner = f"{child.name}."
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                found.update({child.id, f"{prefix}{child.id}"})
            elif isinstance(child, ast.arg):
                found.add(child.arg)
            elif isinstance(child, ast.Attribute):
                found.add(child.attr)
            visit(child, inner)

    visit(ast.parse(path.read_text()), "")
    return found


def pointers(text):
    """(file, name) for `file.py`: `name`, `name` (`name`), up to the next file, semicolon or cell; no files."""
    for match in re.finditer(rf"{FILE}[:,]((?:[^`;|\n]*`[^`\n]*`)*)", text):
        rest = re.split(FILE, match[2])[0]
        yield from ((match[1], name) for name in re.findall(NAME, rest) if not name.endswith(SUFFIXES))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_is_there(page):
    for path in re.findall(FILE, page.read_text()):
        assert located(path), f"{page.name} names {path}"


@pytest.mark.parametrize("page", ["paper-map.md", "theory.md"])
def test_every_name_is_where_the_map_says(page):
    found = list(pointers((ROOT / "docs" / page).read_text()))
    assert len(found) > {"paper-map.md": 40, "theory.md": 5}[page]
    for path, name in found:
        assert name in names(located(path)), f"{page}: {name} is not in {path}"


def test_what_is_gone_is_noticed():
    assert list(pointers("| x | `core/nets.py`: `gone`, `y` (`z`); `core/agent.py`: `build` |")) == [
        ("core/nets.py", "gone"), ("core/nets.py", "y"), ("core/nets.py", "z"), ("core/agent.py", "build"),
    ]  # fmt: skip
    assert "gone" not in names(located("core/nets.py"))


def test_the_page_on_new_algorithms_is_true():
    """Its example is an algorithm; the functions and fields that it lists are those of the protocol."""
    from mepg.algos import LOOP_FIELDS, _check
    from mepg.core.types import Agent
    from tests.conftest import SIZES

    page = (ROOT / "docs" / "new-algorithm.md").read_text()
    example, listed = re.findall(r"```python\n(.*?)```", page, re.S)
    namespace = {}
    exec(example, namespace)
    for name, algorithm in namespace["ALGORITHMS"].items():
        _check(name, algorithm)
        assert algorithm.build(algorithm.spec, SIZES).beliefs is not None
    assert [re.match(r"\w+", line)[0] for line in listed.splitlines()] == list(Agent._fields)
    reads = re.search(r"The loop reads four fields.*?\(", page, re.S)[0]
    assert set(re.findall(r"`(\w+)`", reads)) == set(LOOP_FIELDS)


def test_the_drawing_of_the_rooms_is_complete():
    """CONTRIBUTING.md names every module, in the line of its room or below it."""
    drawing = (
        (ROOT / "CONTRIBUTING.md").read_text().partition("## The rooms")[2].partition("```text")[2].partition("```")[0]
    )
    rooms = named_modules(drawing)
    package = ROOT / "src" / "mepg"
    for path in package.rglob("*.py"):
        module = path.relative_to(package).with_suffix("")
        if module.name not in ("__init__", "__main__"):
            room = f"{module.parent}/" if len(module.parts) > 1 else ""
            assert module.name in rooms.get(room, set()), f"name {module} in CONTRIBUTING.md's drawing of the rooms"


def named_modules(drawing):
    """The modules of each room, and of none (""). Prose follows two spaces or more, or begins far to the right."""
    rooms, room = {}, ""
    for line in drawing.splitlines():
        columns = [(match.start(), match[0].split()) for match in re.finditer(r"\S+(?: \S+)*", line)]
        if not columns or columns[0][0] > 15:
            continue
        (indent, names), following = columns[0], columns[1:2]
        if indent == 1:
            room = names.pop(0) if names[0].endswith("/") else ""
        if not names:  # they stand in a column of their own
            names = next((words for start, words in following if start <= 15), [])
        rooms.setdefault(room, set()).update(names)
        room = next((name for name in names if name.endswith("/")), room)  # the lines that follow are in it
    return rooms


def test_prose_names_no_module():
    drawing = (
        " cli commands/ flags     the program\n     eval list\n a/   b c  d in words\n"
        + 30 * " "
        + "e in words\n f/              g in words\n"
    )
    assert named_modules(drawing) == {
        "": {"cli", "flags", "commands/"},
        "commands/": {"eval", "list"},
        "a/": {"b", "c"},
        "f/": set(),
    }
