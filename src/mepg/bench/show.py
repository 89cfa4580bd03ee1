"""What was measured, for people: tables in Markdown, and a picture."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure

from mepg.bench.measure import AS_PEERS, AS_SBX, MAIN
from mepg.paper.experiments import select
from mepg.paper.tables import paper_table
from mepg.storage.files import write_whole
from mepg.words import many

Results = Mapping[str, Any]
HOPPER = "HopperBulletEnv-v0"
OURS, THEIRS, LIMIT = "#1f6fb4", "#9aa3ad", "#d1495b"
# Bars of the picture: what follows an algorithm's name in the results, and a colour.
LOOPS = {
    "native, mixed": (" mixed", "#0b3c66"),
    "native": ("", OURS),
    "XLA": (" by XLA", "#8fbbe0"),
    "SBX": (" in sbx", "#5f6872"),
    "SB3": (" in sb3", "#b9c0c7"),
}


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

    heads = ("", "with one mask", "without", "in SBX", "without / in SBX")
    parts.append(_table("Beyond the paper, the same work, steps/s", heads, _beyond(results["beyond"])))

    steps = [
        (env, f"{each['as_it_comes']:.0f}", f"{each['here']:.0f}", f"{each['ratio']:.2f}")
        for env, each in results["simulators"].items()
    ]
    parts.append(_table("A step of an environment, µs", ("", "as it comes", "here", "ratio"), steps))
    small = [(name, f"{microseconds:.0f}") for name, microseconds in results["pendulum"].items()]
    title = "A step with an update on Pendulum-v1, hidden 64,64, batch 100: processor time, µs"
    parts.append(_table(title, ("", "µs"), small))

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
    heads = (
        "Ant, with discrete actions CartPole; batch as published",
        *xla,
        "native, ms",
        "native ratio",
        "XLA / native",
    )
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

    def update(name: str, what: str) -> float | None:
        found: float | None = updates.get(name, {}).get(what)
        return found

    def mixed(name: str) -> float | None:
        """Against the products in float32."""
        ours, bare = update(f"{name} mixed", "native_milliseconds"), update(name, "multiplications_milliseconds")
        return None if ours is None or bare is None else ours / bare

    measured = (*MAIN, "redq")
    listed = [Goal(f"update / its products in OpenBLAS, {n}", "<= 1.00", update(n, "native_ratio")) for n in measured]
    listed += [Goal(f"the same with precision=mixed, {n}", "<= 0.58", mixed(n)) for n in measured]
    for name, factor in (("me-sac", "2.5"), ("sac", "2.0")):
        gain = update(f"{name} small", "native_gain")
        listed.append(Goal(f"XLA's update / native, hidden 64,64, batch 100, {name}", f">= {factor}", gain))
    for name in MAIN:
        gain = update(f"{name} all cores", "native_threads_gain")
        listed.append(Goal(f"native on one core / on all, {name}", ">= 1.7", gain))
    for library, wanted in (
        ("sbx", {"td3": 1.6, "sac": 1.6, "ddpg": 1.6}),
        ("sb3", {"td3": 2.2, "sac": 2.6, "ddpg": 2.2}),
    ):
        for name, at_least in wanted.items():
            mine = f"{name} as peers" if AS_PEERS[name] else name
            got = relative(mine, f"{name} in {library}")
            listed.append(Goal(f"loop against {library}, {name}", f">= {at_least}", got))
    two = results.get("two_runs", {})
    for name, speed in (("me-ddpg", 560), ("me-ddpg mixed", 900)):
        got = two.get(name, {}).get("steps_per_second")
        listed.append(Goal(f"two runs of {name} on two cores, steps/s (the paper's GPU: 397)", f">= {speed}", got))
    for env, ratio in ((HOPPER, "0.60"), ("AntBulletEnv-v0", "0.60"), ("Pendulum-v1", "1.50")):
        got = results.get("simulators", {}).get(env, {}).get("ratio")
        listed.append(Goal(f"a step of {env} here / as it comes", f"<= {ratio}", got))
    pendulum = results.get("pendulum", {})
    for name, ratio in (("sac", "1.30"), ("me-sac", "0.90")):
        theirs = pendulum.get("sac in rltools")
        got = None if theirs is None else pendulum[name] / theirs
        listed.append(Goal(f"processor time of {name} / RLtools' SAC, Pendulum, 64,64", f"<= {ratio}", got))
    listed.append(Goal("time of ME-DDPG / TD3 (the paper: 0.82)", "<= 0.70", relative("td3", "me-ddpg")))
    listed.append(Goal("time of ME-SAC / SAC (the paper: 0.96)", "<= 0.55", relative("sac", "me-sac")))
    listed.append(Goal("ten evaluation episodes every 5,000 steps add", "<= 0.20", results["evaluation"]["adds"]))
    listed.append(Goal("seconds to the first update, second start", "<= 2", results["first_step"]["second_start"]))
    return listed


@style.context("default")  # whatever the process has chosen
def draw(results: Results, path: Path) -> None:
    """Updates against their multiplications, and steps per second, ours and others'."""
    figure = Figure(figsize=(11, 5.4))
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": (1, 1.35)})
    updates, loops = results["updates"], results["loops"][HOPPER]
    y = np.arange(len(MAIN))
    bare = [updates[name]["multiplications_milliseconds"] for name in MAIN]
    xla = [updates[name]["milliseconds"] for name in MAIN]
    native = [updates[name].get("native_milliseconds", 0.0) for name in MAIN]
    left.barh(y, xla, color=THEIRS, label="update, XLA")
    left.barh(y, native, height=0.55, color=OURS, label="update, native")
    left.barh(y, bare, height=0.15, color=LIMIT, label="its products in OpenBLAS")
    for place, name in enumerate(MAIN):
        left.text(xla[place], place, f" {updates[name].get('native_gain', 1.0):.2f}x", va="center", fontsize=9)
    left.set_yticks(y, [name.upper() for name in MAIN])
    left.set(xlabel="ms on Ant, one core", title="An update, by XLA and in native code")
    left.set_xlim(right=1.15 * max(updates[name]["milliseconds"] for name in MAIN))
    left.invert_yaxis()
    left.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3)

    speeds = {
        label: {y: loops[name + ending]["steps_per_second"] for y, name in enumerate(MAIN) if name + ending in loops}
        for label, (ending, _) in LOOPS.items()
    }
    there = [label for label, some in speeds.items() if some]
    width = 0.86 / len(there)
    for k, label in enumerate(there):
        rows = [row + (k - (len(there) - 1) / 2) * width for row in speeds[label]]
        right.barh(rows, list(speeds[label].values()), 0.9 * width, color=LOOPS[label][1], label=label)
        for row, speed in zip(rows, speeds[label].values(), strict=True):
            right.text(speed, row, f" {speed:.0f}", va="center", fontsize=7)
    right.set_yticks(y, [name.upper() for name in MAIN])
    right.set(xlabel="steps/s on Hopper, one core", title="Training, without evaluations")
    right.invert_yaxis()
    right.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.11), ncols=5)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    write_whole(path, picture.getvalue())


def _speed(loop: Mapping[str, float] | None) -> str:
    if loop is None:
        return ""
    most = f" ({loop['floor_steps_per_second']:.0f})" if "floor_steps_per_second" in loop else ""
    return f"{loop['steps_per_second']:.0f}{most}"


def _beyond(loops: Results) -> list[tuple[str, ...]]:
    speeds = {name: loop["steps_per_second"] for name, loop in loops.items()}
    rows: list[tuple[str, ...]] = []
    for name, (env, _) in AS_SBX.items():
        plain, sbx = speeds[name], speeds.get(f"{name} in sbx")
        beside = ("", "") if sbx is None else (f"{sbx:.0f}", f"{plain / sbx:.2f}")
        rows.append((f"{name} on {env}", f"{speeds[f'me-{name}']:.0f}", f"{plain:.0f}", *beside))
    return rows


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
