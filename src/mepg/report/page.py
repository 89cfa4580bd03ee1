"""One page about any number of runs: it needs no network, and beside it lie its tables and figures as files.

What comes from runs is text to be escaped, never markup.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import jinja2

import mepg
from mepg.errors import UsageError
from mepg.report.figures import Curves, draw_curves, draw_heat_map, variant_curves
from mepg.report.inspection import draw_inspections
from mepg.report.long_format import PublishedCurve
from mepg.report.runs import Problem, Run
from mepg.report.tables import (
    Improvement,
    Table,
    short_name,
    show,
    show_difference,
    show_with_std,
    to_csv,
    to_markdown,
    variant_tables,
)
from mepg.run.inspection import Inspection, read_inspection
from mepg.storage.files import not_writable, write_atomic
from mepg.storage.folder import Folder
from mepg.training.config import Config
from mepg.words import many

Shares = Mapping[str, Mapping[str, float | None]]  # by row and environment


class TableBlock(NamedTuple):
    """A table on the page, with the comparisons and heat maps made from it."""

    table: Table
    file_name: str  # without its suffix
    open: bool = True  # or folded
    improvements: Sequence[Improvement] = ()
    heat_title: str = ""
    heat_maps: Mapping[str, Shares] = {}  # by caption; the first is also written as a picture


class CurvesBlock(NamedTuple):
    """A figure on the page."""

    curves: Curves
    open: bool = True
    plan: str | None = None  # None: none was planned
    is_papers: bool = False
    note: str = ""


class Section(NamedTuple):
    """A part of the page with a heading of its own."""

    id: str
    title: str
    blocks: Sequence[TableBlock | CurvesBlock]
    note: str = ""


class PlanProgress(NamedTuple):
    """How much of a plan is finished."""

    plan: str
    is_papers: bool
    note: str
    experiments: Sequence[tuple[str, int, int]]  # title, runs found, runs wanted


class Page(NamedTuple):
    """The content of the page. Runs that were inspected get one more section."""

    runs: Sequence[Run]
    problems: Sequence[Problem]
    sections: Sequence[Section]
    plans: Sequence[PlanProgress] = ()  # of a paper, if runs belong to them


class Report(NamedTuple):
    """What was written, and from what."""

    page: Path
    files: list[Path]  # beside the page: tables and figures
    runs: int
    problems: Sequence[Problem]


class Inspected(NamedTuple):
    """What `mepg inspect` found in a run."""

    path: Path
    found: Inspection
    picture: bytes | None  # None: another seed of the same variant is drawn


def variant_sections(runs: Sequence[Run], title: str, note: str, baselines: Sequence[PublishedCurve]) -> list[Section]:
    """Curves and tables of any runs, if there are any."""
    curves = variant_curves(runs, baselines)
    blocks = [CurvesBlock(curves)] if curves.panels else []
    tables = [TableBlock(table, table.name) for table in variant_tables(runs)]
    return [Section("own", title, [*blocks, *tables], note)] if runs else []


def write_page(page: Page, out: Path) -> Report:
    """The page at `out`, and its tables and figures in a folder beside it."""
    inspected, unreadable = _inspected(page.runs)
    page = page._replace(problems=[*page.problems, *unreadable])
    blocks = [block for section in page.sections for block in section.blocks]
    figures = [block for block in blocks if isinstance(block, CurvesBlock)]
    files: dict[str, bytes] = {}
    for block in blocks:
        files |= _curves_files(block) if isinstance(block, CurvesBlock) else _table_files(block)
    pictures = [run.picture for run in inspected if run.picture is not None]
    files |= {f"inside-{number}.png": picture for number, picture in enumerate(pictures, start=1)}
    folder = out.with_name(f"{out.stem}-files")
    html = _render(
        page=page,
        files_link=quote(os.fsencode(folder.name)),  # no system asks for UTF-8
        versions=_versions(page.runs),
        inspected=inspected,
        figures=figures,
        data=[
            [{"env": short_name(env), "curves": [curve._asdict() for curve in panel]} for env, panel in panels.items()]
            for panels in (block.curves.panels for block in figures)
        ],
    )
    _write(out, folder, html.encode("utf-8", "replace"), files)
    return Report(out, [folder / name for name in files], len(page.runs), page.problems)


def write_file(path: Path, text: str) -> None:
    """A file of the user's choice."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise not_writable(path.parent, error) from None


def _write(out: Path, folder: Path, html: bytes, files: dict[str, bytes]) -> None:
    if out.is_dir():
        raise UsageError(f"{out} is a folder; the report needs a file's name, such as report.html")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_atomic(folder / name, content)
        write_atomic(out, html)  # last: a page never links to files that do not exist
    except OSError as error:
        raise not_writable(out.parent, error) from None


def _curves_files(block: CurvesBlock) -> dict[str, bytes]:
    files = {f"{block.curves.name}.{kind}": picture for kind, picture in draw_curves(block.curves).items()}
    if (timed := block.curves.over_hours) is not None:
        pictures = draw_curves(timed, over_hours=True)
        files |= {f"{timed.name}.{kind}": picture for kind, picture in pictures.items()}
    return files


def _table_files(block: TableBlock) -> dict[str, bytes]:
    texts = {name: write(block.table, block.improvements) for name, write in (("csv", to_csv), ("md", to_markdown))}
    files = {f"{block.file_name}.{kind}": text.encode("utf-8", "replace") for kind, text in texts.items()}
    for shares in list(block.heat_maps.values())[:1]:
        pictures = draw_heat_map(block.table.title, block.table.envs, shares)
        files |= {f"{block.file_name}-heat-map.{kind}": picture for kind, picture in pictures.items()}
    return files


def _inspected(runs: Sequence[Run]) -> tuple[list[Inspected], list[Problem]]:
    """The runs that have an inspect.json. Of runs that differ only in their seed, the first is drawn."""
    inspected, problems = [], []
    drawn: set[Config] = set()
    for run in runs:
        try:
            found = read_inspection(Folder(run.path))
        except UsageError as error:
            problems.append(Problem(run.path, str(error)))
            continue
        if found is not None:
            variant = replace(run.config, seed=0)
            picture = None if variant in drawn else draw_inspections([found])
            drawn.add(variant)
            inspected.append(Inspected(run.path, found, picture))
    return inspected, problems


def _versions(runs: Sequence[Run]) -> dict[str, str]:
    """The version of each package; if there are several, with the number of runs of each."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for name, version in (item for run in runs for item in run.versions.items()):
        counts[name][version] += 1

    def text(versions: Counter[str]) -> str:
        return ", ".join(f"{v} ({many(n, 'run')})" if len(versions) > 1 else v for v, n in versions.items())

    return {name: text(versions) for name, versions in counts.items()}


def _render(**content: object) -> str:
    loader = jinja2.PackageLoader("mepg.report", "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters |= {
        "base64": lambda content: base64.b64encode(content).decode(),
        "sha256": lambda text: hashlib.sha256(text.encode()).digest(),
        "path": lambda path: os.fsencode(path).decode("utf-8", "replace"),
    }
    names = (many, short_name, show, show_with_std, show_difference)
    environment.globals |= {"version": mepg.__version__, **{function.__name__: function for function in names}}
    return environment.get_template("page.html").render(**content)
