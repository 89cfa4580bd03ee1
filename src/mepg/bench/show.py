"""What was measured, for people: tables in Markdown, and a picture."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure

from mepg.bench.measure import AS_PEERS, MAIN
from mepg.paper.experiments import select
from mepg.paper.tables import paper_table
from mepg.run.files import write_whole
from mepg.words import many

Results = Mapping[str, Any]
HOPPER = "HopperBulletEnv-v0"
OURS, THEIRS, LIMIT = "#1f6fb4", "#9aa3ad", "#d1495b"


class Goal(NamedTuple):
    """Something to reach, and what was reached; None: not measured."""

    what: str
    wanted: str
    got: float | None

    @property
    def text(self) -> str:
        return "not measured" if self.got is None else f"{self.got:.2f}"


def to_markdown(results: Results) -> str:
    """All tables."""
    about, parts = results["about"], []
    peers = "; ".join(
        f"{name}: " + ", ".join(f"{key} {version}" for key, version in known.items())
        for name, known in about.get("peers", {}).items()
    )
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    parts.append(
        f"Measured on {about['date']}, commit {about['commit']}, "
        f"{many(about['cores'], 'core')} of {about['processor']}; "
        f"{versions}{'; ' + peers if peers else ''}. One core unless said otherwise."
    )
    parts.append(_table("Goals", ("", "wanted", "measured"), [(g.what, g.wanted, g.text) for g in goals(results)]))

    parts.append(updates_table(results["updates"]))

    loops = results["loops"]
    names = dict.fromkeys(name for env in loops.values() for name in env)
    cells = [(name, *(_speed(loops[env].get(name)) for env in loops), _memory(loops, name)) for name in names]
    title = "Training, steps/s; in brackets, what the multiplications and the environment alone would allow"
    parts.append(_table(title, ("", *loops, "peak MB"), cells))

    parts.append(_table("Run time, TD3 = 1", ("", "the paper, Table 3", "here"), _run_times(loops)))
    first, evaluation = results["first_step"], results["evaluation"]
    rest = [
        ("from the command to the first update", f"{first['first_start']:.1f} s"),
        ("the same, once more", f"{first['second_start']:.1f} s"),
        ("ten evaluation episodes", f"{evaluation['seconds']:.1f} s for {many(round(evaluation['steps']), 'step')}"),
    ]
    parts.append(_table("Around it", ("", ""), rest))
    growth = [
        (f"{field} {value}", f"{milliseconds:.2f}")
        for field, values in results["growth"].items()
        for value, milliseconds in values.items()
    ]
    parts.append(_table("An update of ME-SAC on Ant, ms, as one thing grows", ("", "ms"), growth))
    return "\n\n".join(parts) + "\n"


def updates_table(updates: Results) -> str:
    """Each algorithm's update."""
    xla = "MFLOP", "ms", "multiplications, ms", "ratio", "of minima", "ME-SAC = 1"
    heads = ("Ant, batch as published", *xla, "native, ms", "native ratio", "XLA / native")
    rows = [
        (
            name,
            f"{u['mflop']:.0f}",
            f"{u['milliseconds']:.2f}",
            f"{u['multiplications_milliseconds']:.2f}",
            f"{u['ratio']:.2f}",
            f"{u['ratio_of_minima']:.2f}",
            f"{u['relative_to_me_sac']:.2f}",
            *(f"{u[x]:.2f}" if x in u else "" for x in ("native_milliseconds", "native_ratio", "native_gain")),
        )
        for name, u in updates.items()
    ]
    return _table("An update, with the next action, against its multiplications", heads, rows)


def goals(results: Results) -> list[Goal]:
    """The project's own goals, and what was reached."""
    updates, loops = results["updates"], results["loops"][HOPPER]

    def relative(name: str, other: str) -> float | None:
        pair = loops.get(name), loops.get(other)
        return None if None in pair else pair[0]["steps_per_second"] / pair[1]["steps_per_second"]

    listed = [Goal(f"update / multiplications, {name}", "<= 1.20", updates[name]["ratio"]) for name in MAIN]
    for name in MAIN:
        ours, bare = updates[f"{name} mixed"]["milliseconds"], updates[name]["multiplications_milliseconds"]
        listed.append(Goal(f"the same with precision=mixed, {name}", "<= 0.95", ours / bare))
    for library, wanted in (
        ("sbx", {"td3": 1.4, "sac": 1.4, "ddpg": 1.4}),
        ("sb3", {"td3": 1.6, "ddpg": 1.8, "sac": 2.2}),
    ):
        for name, factor in wanted.items():
            mine = f"{name} as peers" if AS_PEERS[name] else name
            got = relative(mine, f"{name} in {library}")
            listed.append(Goal(f"loop against {library}, {name}", f">= {factor}", got))
    listed.append(Goal("time of ME-DDPG / TD3 (the paper: 0.82)", "<= 0.70", relative("td3", "me-ddpg")))
    listed.append(Goal("time of ME-SAC / SAC (the paper: 0.96)", "<= 0.55", relative("sac", "me-sac")))
    two = results.get("two_runs", {}).get("throughput_against_one")
    listed.append(Goal("two runs at once / one", ">= 1.9", two))
    listed.append(Goal("one run on all cores / on one, ME-SAC", ">= 1.4", relative("me-sac all cores", "me-sac")))
    listed.append(Goal("ten evaluation episodes every 5,000 steps add", "<= 0.20", results["evaluation"]["adds"]))
    listed.append(Goal("seconds to the first step, second start", "<= 5", results["first_step"]["second_start"]))
    return listed


@style.context("default")  # whatever the process has chosen
def draw(results: Results, path: Path) -> None:
    """Updates against their multiplications, and steps per second, ours and others'."""
    figure = Figure(figsize=(11, 4.2))
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": (1, 1.35)})
    updates, loops = results["updates"], results["loops"][HOPPER]
    y = np.arange(len(MAIN))
    bare = [updates[name]["multiplications_milliseconds"] for name in MAIN]
    left.barh(y, [updates[name]["milliseconds"] for name in MAIN], color=OURS, label="update")
    left.barh(y, bare, height=0.35, color=LIMIT, label="its multiplications alone")
    for place, name in enumerate(MAIN):
        left.text(updates[name]["milliseconds"], place, f" {updates[name]['ratio']:.2f}", va="center", fontsize=9)
    left.set_yticks(y, [name.upper() for name in MAIN])
    left.set(xlabel="ms on Ant, one core", title="An update, and what it cannot avoid")
    left.set_xlim(right=1.15 * max(updates[name]["milliseconds"] for name in MAIN))
    left.invert_yaxis()
    left.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)

    shown = [name for name in (*MAIN, *loops) if name in loops and "cores" not in name and "as peers" not in name]
    shown = sorted(dict.fromkeys(shown), key=lambda name: -loops[name]["steps_per_second"])
    speeds = [loops[name]["steps_per_second"] for name in shown]
    colours = [THEIRS if " in " in name else OURS for name in shown]
    right.barh(np.arange(len(shown)), speeds, color=colours)
    for place, speed in enumerate(speeds):
        right.text(speed, place, f" {speed:.0f}", va="center", fontsize=9)
    right.set_yticks(np.arange(len(shown)), [_label(name) for name in shown])
    right.set(xlabel="steps/s on Hopper, one core", title="Training, without evaluations")
    right.set_xlim(right=1.12 * max(speeds))
    right.invert_yaxis()
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    write_whole(path, picture.getvalue())


def _label(name: str) -> str:
    algorithm, _, library = name.partition(" in ")
    return f"{algorithm.upper()} in {library.upper()}" if library else algorithm.upper()


def _speed(loop: Mapping[str, float] | None) -> str:
    if loop is None:
        return ""
    most = f" ({loop['floor_steps_per_second']:.0f})" if "floor_steps_per_second" in loop else ""
    return f"{loop['steps_per_second']:.0f}{most}"


def _memory(loops: Results, name: str) -> str:
    return f"{max(env[name]['megabytes'] for env in loops.values() if name in env):.0f}"


def _run_times(loops: Results) -> list[tuple[str, str, str]]:
    """Means over the tasks of each, relative to TD3."""
    printed = {line.algorithm: line for line in paper_table(select("table3", "paper"), ()).lines}
    minutes = {name: [cell.published.value for cell in line.cells if cell.published] for name, line in printed.items()}
    rows = []
    for name, line in printed.items():
        theirs = np.mean(np.divide(minutes[name], minutes["td3"]))
        here = [env["td3"]["steps_per_second"] / env[name]["steps_per_second"] for env in loops.values() if name in env]
        rows.append((line.label, f"{theirs:.2f}", f"{np.mean(here):.2f}" if here else ""))
    return rows


def _table(title: str, heads: tuple[str, ...], rows: list[Any]) -> str:
    lines = [f"**{title}**", "", "| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)
