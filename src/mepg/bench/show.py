"""What was measured, for people: tables in Markdown, and a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from mepg.bench.measure import ANT, AS_PEERS, AS_SBX, HOPPER, MAIN, PENDULUM
from mepg.paper.experiments import select
from mepg.paper.tables import paper_table
from mepg.report.figures import STYLE, to_picture
from mepg.storage.files import write_atomic
from mepg.words import many

Results = Mapping[str, Any]
OURS, THEIRS, LIMIT = "#1f6fb4", "#9aa3ad", "#d1495b"
# Bars of the picture: the suffix of an algorithm's name in the results, and a colour.
LOOPS = {
    "native, mixed": (" mixed", "#0b3c66"),
    "native": ("", OURS),
    "XLA": (" by XLA", "#8fbbe0"),
    "SBX": (" in sbx", "#5f6872"),
    "SB3": (" in sb3", "#b9c0c7"),
}


def to_markdown(results: Results) -> str:
    """All tables."""
    return "\n\n".join(tables(results).values()) + "\n"


def tables(results: Results) -> dict[str, str]:
    """The tables in Markdown, by name, after a paragraph about the measurement."""
    loops, first, evaluation = results["loops"], results["first_step"], results["evaluation"]
    names = dict.fromkeys(name for env in loops.values() for name in env)
    training = [(name, *(_speed(loops[env].get(name)) for env in loops), _memory(loops, name)) for name in names]
    steps = [
        (env, f"{each['as_it_comes']:.0f}", f"{each['here']:.0f}", f"{each['ratio']:.2f}")
        for env, each in results["simulators"].items()
    ]
    around = [
        ("from the command to the first update", f"{first['first_start']:.1f} s"),
        ("the same, once more", f"{first['second_start']:.1f} s"),
        ("ten evaluation episodes", f"{evaluation['seconds']:.1f} s for {many(round(evaluation['steps']), 'step')}"),
    ]
    return {
        "about": _about(results["about"]),
        "summary": table("Summary", ("", "measured"), list(summary(results).items())),
        "updates": updates_table(results["updates"]),
        "loops": table(
            "Training, steps/s; in brackets, what the multiplications and the environment alone would allow",
            ("", *loops, "peak MB"),
            training,
        ),
        "beyond": table(
            "Beyond the paper, the same work, steps/s",
            ("", "with one mask", "without", "in SBX", "without / in SBX"),
            _beyond(results["beyond"]),
        ),
        "simulators": table("A step of an environment, µs", ("", "as it comes", "here", "ratio"), steps),
        "pendulum": table(
            "A step with an update on Pendulum-v1, hidden 64,64, batch 100: processor time, µs",
            ("", "µs"),
            [(name, f"{microseconds:.0f}") for name, microseconds in results["pendulum"].items()],
        ),
        "run times": table("Run time, TD3 = 1", ("", "the paper, Table 3", "here"), _run_times(loops)),
        "memory": table(
            "Resident memory of a run on Hopper with a full replay buffer, MB",
            ("", "MB"),
            [(name, f"{megabytes:.0f}") for name, megabytes in results["memory"].items()],
        ),
        "around": table("Around it", ("", ""), around),
    }


def _about(about: Results) -> str:
    peers = "; ".join(
        f"{name}: " + ", ".join(f"{package} {version}" for package, version in versions.items())
        for name, versions in about.get("peers", {}).items()
    )
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return (
        f"Measured on {about['date']}, commit {about['commit']}, "
        f"{many(about['cores'], 'core')} of {about['processor']}; "
        f"{versions}{'; ' + peers if peers else ''}. One core unless said otherwise."
    )


def updates_table(updates: Results) -> str:
    """Each algorithm's update."""
    heads = (
        "Ant, with discrete actions CartPole; batch as published", "MFLOP", "ms", "multiplications, ms", "ratio",
        "of minima", "ME-SAC = 1", "native, ms", "native ratio", "XLA / native",
    )  # fmt: skip
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
    return table("An update, with the next action, against its multiplications", heads, rows)


def summary(results: Results) -> dict[str, str]:
    """The ratios that matter most, and a few absolute figures; "not measured" where one of the two is missing."""
    updates: Mapping[str, Mapping[str, float]] = results["updates"]
    loops: Mapping[str, Mapping[str, float]] = results["loops"][HOPPER]

    def update(name: str, quantity: str) -> float | None:
        return updates.get(name, {}).get(quantity)

    def speed(name: str) -> float | None:
        return loops.get(name, {}).get("steps_per_second")

    # "mixed" is measured against the products in float32.
    mixed = {name: (update(f"{name} mixed", "native_milliseconds"), update(name, "multiplications_milliseconds"))
             for name in (*MAIN, "redq")}  # fmt: skip
    found = {f"update / its products in OpenBLAS, {name}": update(name, "native_ratio") for name in mixed}
    found |= {f"the same with precision=mixed, {name}": _ratio(*pair) for name, pair in mixed.items()}
    for name in ("me-sac", "sac"):
        gain = update(f"{name} small", "native_gain")
        found[f"XLA's update / native, hidden 64,64, batch 100, {name}"] = gain
    for name in MAIN:
        found[f"native on one core / on all, {name}"] = update(f"{name} all cores", "native_threads_gain")
    for library in ("sbx", "sb3"):
        for name, settings in AS_PEERS.items():
            same_work = f"{name} as peers" if settings else name
            found[f"loop against {library}, {name}"] = _ratio(speed(same_work), speed(f"{name} in {library}"))
    for name in ("me-ddpg", "me-ddpg mixed"):
        together = results.get("two_runs", {}).get(name, {}).get("steps_per_second")
        found[f"two runs of {name} on two cores, steps/s (the paper's GPU: 397)"] = together
    for env in (HOPPER, ANT, PENDULUM):
        found[f"a step of {env} here / as it comes"] = results["simulators"].get(env, {}).get("ratio")
    pendulum = results["pendulum"]
    for name in ("sac", "me-sac"):
        ratio = _ratio(pendulum[name], pendulum.get("sac in rltools"))
        found[f"processor time of {name} / RLtools' SAC, Pendulum, 64,64"] = ratio
    found["time of ME-DDPG / TD3 (the paper: 0.82)"] = _ratio(speed("td3"), speed("me-ddpg"))
    found["time of ME-SAC / SAC (the paper: 0.96)"] = _ratio(speed("sac"), speed("me-sac"))
    found["ten evaluation episodes every 5,000 steps add"] = results["evaluation"]["adds"]
    found["seconds to the first update, second start"] = results["first_step"]["second_start"]
    return {name: "not measured" if value is None else f"{value:.2f}" for name, value in found.items()}


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return None if numerator is None or denominator is None else numerator / denominator


@STYLE
def draw(results: Results, path: Path) -> None:
    """Updates against their multiplications, and steps per second, ours and others'."""
    figure = Figure(figsize=(11, 5.4))
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": (1, 1.35)})
    updates, loops = results["updates"], results["loops"][HOPPER]
    rows = range(len(MAIN))
    bare = [updates[name]["multiplications_milliseconds"] for name in MAIN]
    xla = [updates[name]["milliseconds"] for name in MAIN]
    native = [updates[name].get("native_milliseconds", 0.0) for name in MAIN]
    left.barh(rows, xla, color=THEIRS, label="update, XLA")
    left.barh(rows, native, height=0.55, color=OURS, label="update, native")
    left.barh(rows, bare, height=0.15, color=LIMIT, label="its products in OpenBLAS")
    for row, name in enumerate(MAIN):
        left.text(xla[row], row, f" {updates[name].get('native_gain', 1.0):.2f}x", va="center", fontsize=9)
    left.set_yticks(rows, [name.upper() for name in MAIN])
    left.set(xlabel="ms on Ant, one core", title="An update, by XLA and in native code")
    left.set_xlim(right=1.15 * max(updates[name]["milliseconds"] for name in MAIN))
    left.invert_yaxis()
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3)

    speeds = {
        label: {
            row: loops[name + suffix]["steps_per_second"] for row, name in enumerate(MAIN) if name + suffix in loops
        }
        for label, (suffix, _) in LOOPS.items()
    }
    measured = [label for label, by_row in speeds.items() if by_row]
    height = 0.86 / len(measured)
    for i, label in enumerate(measured):
        ys = [row + (i - (len(measured) - 1) / 2) * height for row in speeds[label]]
        right.barh(ys, list(speeds[label].values()), 0.9 * height, color=LOOPS[label][1], label=label)
        for y, speed in zip(ys, speeds[label].values(), strict=True):
            right.text(speed, y, f" {speed:.0f}", va="center", fontsize=7)
    right.set_yticks(rows, [name.upper() for name in MAIN])
    right.set(xlabel="steps/s on Hopper, one core", title="Training, without evaluations")
    right.invert_yaxis()
    right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=5)
    for axes in (left, right):
        axes.grid(False)
    write_atomic(path, to_picture(figure, "png"))


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
    """Means over tasks, relative to TD3."""
    printed = {row.algorithm: row for row in paper_table(select("table3", "paper"), ()).rows}
    minutes = {name: [cell.published.value for cell in row.cells if cell.published] for name, row in printed.items()}
    rows = []
    for name, row in printed.items():
        published = np.mean(np.divide(minutes[name], minutes["td3"]))
        ours = [env["td3"]["steps_per_second"] / env[name]["steps_per_second"] for env in loops.values() if name in env]
        rows.append((row.label, f"{published:.2f}", f"{np.mean(ours):.2f}" if ours else ""))
    return rows


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [f"**{title}**", "", "| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)
