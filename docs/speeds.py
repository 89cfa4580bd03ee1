"""Makes the tables of speed in README.md, docs/expect.md and docs/performance.md from one run of `mepg bench`.

python docs/speeds.py            from docs/bench.json
python docs/speeds.py bench      from that folder, whose bench.json and bench.png are published
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from markers import filled

from mepg.bench.measure import ENSEMBLES, HOPPER, MAIN
from mepg.bench.show import summary, table, tables

ROOT = Path(__file__).parent.parent
RESULTS, PICTURE = ROOT / "docs" / "bench.json", ROOT / "docs" / "images" / "bench.png"
TARGETS = ROOT / "docs" / "bench-targets.json"  # our own, for figures of the benchmark's summary
ROW = "| SAC on Hopper, steps/s on one core |"


def pages(results: dict[str, Any]) -> dict[Path, str]:
    """Each page as it should read."""
    makers = {"docs/expect.md": updates, "docs/performance.md": performance}
    made = {ROOT / name: filled((ROOT / name).read_text(), {"bench": maker(results)}) for name, maker in makers.items()}
    readme = ROOT / "README.md"
    made[readme] = re.sub(rf"^{re.escape(ROW)}.*$", in_one_row(results), readme.read_text(), flags=re.MULTILINE)
    return made


def performance(results: dict[str, Any]) -> str:
    """All tables of the benchmark; the summary is set against our targets."""
    measured = summary(results)
    rows = [(name, target, measured[name]) for name, target in json.loads(TARGETS.read_text()).items()]
    goals = table("Goals", ("", "wanted", "measured"), rows)
    return "\n\n".join({**tables(results), "summary": goals}.values())


def in_one_row(results: dict[str, Any]) -> str:
    """Of the table that compares libraries."""
    (ours, mixed, sbx, sb3), (me_sac, me_sac_mixed, *_) = (trained(results, name) for name in ("sac", "me-sac"))
    here = f"{ours}, ME-SAC {me_sac}; in mixed precision {mixed} and {me_sac_mixed}"
    return f"{ROW} {sb3} | {sbx} | not measured | {here} |"


def updates(results: dict[str, Any]) -> str:
    """An update, and training, of each of the paper's algorithms."""
    heads = (
        "one core",
        "update on Ant",
        "against its matrix products alone",
        "by XLA",
        "training on Hopper, steps/s",
        "mixed precision",
    )
    lines = [f"| {' | '.join(heads)} | in SBX | in SB3 |", "| --- |" + " --- |" * 7]
    for name in (*MAIN, *ENSEMBLES):
        update = results["updates"][name]
        native = f"{update['native_milliseconds']:.1f} ms | {update['native_ratio']:.2f}"
        steps_per_second = " | ".join(trained(results, name))
        lines.append(f"| `{name}` | {native} | {update['milliseconds']:.1f} ms | {steps_per_second} |")
    return "\n".join(lines)


def trained(results: dict[str, Any], name: str) -> list[str]:
    """Steps per second on Hopper, as it is, in mixed precision, in SBX and in SB3; empty where it was not measured."""
    loops = results["loops"][HOPPER]
    found = (loops.get(name + ending) for ending in ("", " mixed", " in sbx", " in sb3"))
    return ["" if each is None else f"{each['steps_per_second']:.0f}" for each in found]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        shutil.copy(Path(sys.argv[1]) / "bench.json", RESULTS)
        shutil.copy(Path(sys.argv[1]) / "bench.png", PICTURE)
    for path, text in pages(json.loads(RESULTS.read_text())).items():
        path.write_text(text)
