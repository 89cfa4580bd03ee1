"""Makes what pages show of results/: pictures, films, and the tables between their markers.

The pages are docs/results.md, docs/one-critic.md and README.md.

python docs/results.py           pictures and tables: seconds
python docs/results.py --new     after runs were added: inspects them, and keeps the policy of the best seed only
python docs/results.py --films   also the films, which are rendered anew: minutes
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import one_critic
from markers import filled
from measures import evaluations_within, interval, mean_of_last_ten
from pictures import draw_beliefs, draw_variants, film, inspected

from mepg.algos import find
from mepg.cli import main
from mepg.paper.experiments import FOUR_TASKS, Selection, select
from mepg.paper.tables import improvements, paper_table, runs_of
from mepg.report.figures import Curves, draw_curves, make_curves
from mepg.report.runs import Run, collect
from mepg.report.statistics import bootstrap, interquartile_mean, normalise, probability_of_improvement
from mepg.report.tables import short_name, to_markdown
from mepg.run.inspection import Inspection, read_inspection
from mepg.storage.files import write_atomic
from mepg.storage.folder import Folder

ROOT = Path(__file__).parent.parent
PAGE, README, IMAGES = ROOT / "docs" / "results.md", ROOT / "README.md", ROOT / "docs" / "images"
ONE_CRITIC = ROOT / "docs" / "one-critic.md"
HOPPER = "HopperBulletEnv-v0"
SEEDS = 3
# The study's variants, as its folders are named, and what is other than in ME-SAC as it is listed.
STUDY = {
    "sac": "SAC",
    "me-sac": "ME-SAC",
    "me-sac-native": "ME-SAC again, in native code",
    "me-sac-alpha": "alpha learned at every update (D7)",
    "me-sac-logstd": "log-std from -20 to 2 (D10)",
    "me-sac-uniform": "uniform initial weights (D10)",
    "me-sac-released": "these three together",
    "me-sac-du": "no delay",
    "me-sac-cdq": "two critics",
    "me-sac-do": "no mask",
    "me-sac-p0.3": "p = 0.3",
}
# ME-SAC as it is listed, by what computed it.
BACKENDS = {"me-sac": "XLA", "me-sac-native": "native code", "me-sac-mixed": "native code, mixed precision"}
# The paper's tables at the scale of results/PLAN: which rows are planned.
STEPS = 200_000  # steps
TABLES = {"table1": "me-sac,me-ddpg,sac,td3,ddpg", "table2": "me-sac,me-sac-r,sac,me-ddpg,me-ddpg-do,me-ddpg-r,ddpg"}
Pairs = tuple[tuple[str, str], ...]
COMPARED: Pairs = (("ME-SAC", "SAC"), ("ME-DDPG", "TD3"), ("ME-DDPG", "DDPG"))  # for what they cost
# For what the mask does, and what is left of ME-DDPG without it.
MASKS: Pairs = (
    ("ME-SAC", "ME-SAC-R"),
    ("ME-DDPG", "ME-DDPG-R"),
    ("ME-DDPG", "ME-DDPG-DO"),
    ("ME-DDPG-DO", "DDPG"),
)
TIMED = ("sac", "me-sac")  # of the study: drawn over core-hours too
# Which rows of these tables a picture of curves shows.
PICTURES = {
    "tasks": ("ME-SAC", "ME-DDPG", "SAC", "TD3", "DDPG"),
    "masks-sac": ("ME-SAC", "ME-SAC-R", "SAC"),
    "masks-ddpg": ("ME-DDPG", "ME-DDPG-R", "ME-DDPG-DO", "DDPG"),
}


def published() -> list[Run]:
    """All finished runs."""
    runs, problems = collect([ROOT / "results"])
    if problems:
        raise SystemExit("\n".join(f"{problem.path} {problem.reason}" for problem in problems))
    loops = json.loads((ROOT / "results" / "bench.json").read_text())["loops"]
    return [with_estimated_hours(run, loops) for run in runs if run.finished]


def with_estimated_hours(run: Run, loops: dict[str, dict[str, dict[str, float]]]) -> Run:
    """The first eight runs of the study did not record processor time.

    Their core-hours are learning steps at the speed that the benchmark measured, on a quiet machine, for algorithms as
    they are listed.
    """
    algorithm, spec = run.config.algorithm, run.config.spec
    loop = loops.get(run.env, {}).get(algorithm)
    if run.hours is not None or loop is None or spec != find(algorithm).spec or run.config.threads != 1:
        return run
    return run._replace(hours=np.maximum(run.steps - spec.warmup, 0) / loop["steps_per_second"] / 3600)


def study(runs: Iterable[Run], variants: Iterable[str] = STUDY) -> dict[str, list[Run]]:
    """The runs of each variant, by seed."""
    by_name = {run.path.name: run for run in runs if run.path.parent.name == "study"}
    names = {variant: [f"{variant}-seed{seed}" for seed in range(SEEDS)] for variant in variants}
    return {variant: [by_name[name] for name in wanted if name in by_name] for variant, wanted in names.items()}


def planned(name: str) -> Selection:
    """What results/PLAN wants of one of the paper's tables."""
    return select(name, "desk", only=TABLES[name].split(","), steps=STEPS)


def runs_of_tables(runs: Iterable[Run]) -> dict[str, dict[str, list[Run]]]:
    """The runs of all these tables, by row and task. Table 2 is first: it has ablations beside their algorithm."""
    runs = list(runs)
    return {label: by_env for name in ("table2", "table1") for label, by_env in runs_of(planned(name), runs).items()}


def tidy(runs: Iterable[Run]) -> None:
    """Inspects runs while their policies are there; then keeps those of the tables' best seeds."""
    seeds: dict[str, list[Run]] = {}
    for run in runs:
        folder = Folder(run.path)
        if not folder.policy_file.exists():
            continue
        if read_inspection(folder) is None:
            main(["inspect", str(run.path)])
            (run.path / "inspect.png").unlink(missing_ok=True)
        seeds.setdefault(re.sub(r"seed\d+$", "", str(run.path)), []).append(run)
    for same in seeds.values():
        kept = None if same[0].path.parent.name in ("study", one_critic.FOLDER) else best(same)
        for run in same:
            if run is not kept:
                Folder(run.path).policy_file.unlink()


def pages(runs: list[Run]) -> dict[Path, str]:
    """Each page as it should read."""
    variants, rows = study(runs), runs_of_tables(runs)
    tables = {
        "returns": returns(variants),
        "bias": bias(variants),
        "compared": comparison(variants),
        "count": count(variants),
        "backends": by_backend(study(runs, BACKENDS)),
        "cost": cost(rows),
        "ahead": improvement(rows, COMPARED, list(MEASURES)),
        "masks": improvement(rows, MASKS, list(MEASURES)[:3]),
        "beliefs": q_errors(rows),
        **{name: paper_markdown(name, runs) for name in TABLES},
    }
    texts = {PAGE: tables, README: {"returns": summary(rows)}, ONE_CRITIC: {"candidates": one_critic.table(runs)}}
    return {path: filled(path.read_text(), text) for path, text in texts.items()}


def summary(rows: dict[str, dict[str, list[Run]]]) -> str:
    """Mean returns of each pair's first at its end, and of its second after as much time and after as many steps."""
    found = {"": f"{' | '.join(map(short_name, FOUR_TASKS))} | core-hours |", "---": " | ".join(["---:"] * 5) + " |"}
    for first, other in COMPARED:
        tasks = paired_by_seed(rows[first], rows[other]).values()
        labels = (f"**{first}**", f"{other} after as many core-hours", f"{other} after as many steps")
        ends = [
            [(mean_of_last_ten(a), mean_of_last_ten(b, a.hours[-1]), mean_of_last_ten(b)) for a, b in pairs]
            for pairs in tasks
        ]
        hours = [(a.hours[-1], a.hours[-1], b.hours[-1]) for pairs in tasks for a, b in pairs]
        means = np.array([np.mean(task, axis=0) for task in ends]).T
        for label, returns, cost in zip(labels, means, np.mean(hours, axis=0), strict=True):
            found[label] = " | ".join(f"{mean:,.0f}" for mean in returns) + f" | {cost:.2f} |"
    return "\n".join(f"| {label} | {cells}" for label, cells in found.items())


def paper_markdown(name: str, runs: list[Run]) -> str:
    """One of the paper's tables, as far as there are runs."""
    selection = planned(name)
    found = sum(len(members) for by_env in runs_of(selection, runs).values() for members in by_env.values())
    head = f"{found} of {len(selection.all_configs())} planned runs are finished."
    return f"{head}\n\n{to_markdown(paper_table(selection, runs), improvements(selection, runs))}" if found else head


# What runs are compared by, within so many core-hours.
MEASURES: dict[str, Callable[[Run, float], float]] = {
    "last evaluation": lambda run, _: run.means[-1],
    "last ten": lambda run, _: mean_of_last_ten(run),
    "five best": lambda run, _: run.mean_of_five_best,
    "last ten at equal core-hours": mean_of_last_ten,
}


def cost(rows: dict[str, dict[str, list[Run]]]) -> str:
    """Each pair after as many steps, and after as much processor time. Means over the seeds that both have."""
    lines = [
        "| | | return | core-hours | | return | core-hours | return at the first's core-hours | which is at step |"
    ]
    lines.append("| --- | --- | ---: | ---: | --- |" + " ---: |" * 4)
    for first, other in COMPARED:
        for env, pairs in paired_by_seed(rows[first], rows[other]).items():
            firsts, others = (return_and_hours(runs) for runs in zip(*pairs, strict=True))
            at_equal_cost = np.mean([mean_of_last_ten(slow, quick.hours[-1]) for quick, slow in pairs])
            step = np.mean([slow.steps[evaluations_within(slow, quick.hours[-1]) - 1] for quick, slow in pairs])
            lines.append(
                f"| {short_name(env)} | {first} | {firsts} | {other} | {others} | {at_equal_cost:,.0f} | {step:,.0f} |"
            )
    return "\n".join(lines)


def improvement(rows: dict[str, dict[str, list[Run]]], compared: Pairs, measures: Sequence[str]) -> str:
    """The probability that each pair's first is above its second, over the tasks where both have several seeds."""
    lines = [f"| | {' | '.join(measures)} | tasks |", "| --- |" + " ---: |" * (len(measures) + 1)]
    for first, other in compared:
        envs = [env for env in FOUR_TASKS if len(rows[first][env]) > 1 and len(rows[other][env]) > 1]
        hours = {env: float(np.mean([run.hours[-1] for run in rows[first][env]])) for env in envs}
        cells = []
        for measure in map(MEASURES.__getitem__, measures if envs else ()):
            firsts = {env: [measure(run, np.inf) for run in rows[first][env]] for env in envs}
            others = {env: [measure(run, hours[env]) for run in rows[other][env]] for env in envs}
            cells.append(interval(bootstrap(probability_of_improvement, firsts, others)))
        if cells:
            lines.append(f"| {first} over {other} | {' | '.join(cells)} | {len(envs)} |")
    return "\n".join(lines)


def paired_by_seed(first: dict[str, list[Run]], other: dict[str, list[Run]]) -> dict[str, list[tuple[Run, Run]]]:
    """The runs of the seeds that both have, by task."""
    paired = {}
    for env in FOUR_TASKS:
        by_seed = {run.config.seed: run for run in other[env]}
        paired[env] = [(run, by_seed[run.config.seed]) for run in first[env] if run.config.seed in by_seed]
    return {env: pairs for env, pairs in paired.items() if pairs}


def return_and_hours(runs: Sequence[Run]) -> str:
    """Two cells: the mean of their last ten evaluations, and of their core-hours."""
    return f"{np.mean([*map(mean_of_last_ten, runs)]):,.0f} | {np.mean([run.hours[-1] for run in runs]):.2f}"


def q_errors(rows: dict[str, dict[str, list[Run]]]) -> str:
    """Q less the return that followed, and that return, of each seed that was inspected."""
    lines = [f"| | {' | '.join(map(short_name, FOUR_TASKS))} |", "| --- |" + " ---: |" * len(FOUR_TASKS)]
    for label, by_env in rows.items():
        cells = ["<br>".join(q_error(found) for _, found in inspected(by_env[env])) for env in FOUR_TASKS]
        if any(cells):
            lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def q_error(found: Inspection) -> str:
    """+47.8 of 85.2"""
    return f"{found.bias:+.3g} of {np.mean(found.some.truth):.3g}"


def by_backend(variants: dict[str, list[Run]]) -> str:
    """Last evaluations, and the mean of the five best, of each seed."""
    lines = ["| | last evaluation, seeds 0, 1, 2 | mean | mean of the five best | mean |"]
    lines.append("| --- |" + " ---: |" * 4)
    for name, runs in variants.items():
        cells = []
        for numbers in ([run.means[-1] for run in runs], [run.mean_of_five_best for run in runs]):
            cells += ["; ".join(f"{number:,.0f}" for number in numbers), f"{np.mean(numbers):,.0f}" if runs else ""]
        lines.append(f"| {BACKENDS[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def count(variants: dict[str, list[Run]]) -> str:
    """How many runs there are, and which are missing."""
    finished = sum(map(len, variants.values()))
    missing = [
        f"{STUDY[name]} ({SEEDS - len(runs)} of {SEEDS} seeds)" for name, runs in variants.items() if len(runs) < SEEDS
    ]
    text = f"{finished} of the {len(STUDY) * SEEDS} runs that are planned are finished."
    return text + (f" Missing: {'; '.join(missing)}." if missing else "")


def returns(variants: dict[str, list[Run]]) -> str:
    """A line for each run."""
    lines = [
        "| | seed | last evaluation | best evaluation | mean of the five best | core-hours |",
        "| --- |" + " ---: |" * 5,
    ]
    for name, runs in variants.items():
        for run in runs:
            hours = "" if run.hours is None else f"{run.hours[-1]:.2f}"
            numbers = (run.means[-1], run.means.max(), run.mean_of_five_best)
            shown = " | ".join(f"{number:,.0f}" for number in numbers)
            lines.append(f"| {STUDY[name]} | {run.config.seed} | {shown} | {hours} |")
    return "\n".join(lines)


def comparison(variants: dict[str, list[Run]]) -> str:
    """Variants with several seeds: mean and spread, the interquartile mean, and how often each ends above SAC."""
    lines = [
        "| | seeds | five best | last | last, normalised | ends above SAC |",
        "| --- |" + " ---: |" * 5,
    ]
    several = {name: runs for name, runs in variants.items() if len(runs) > 1}
    last = {name: {HOPPER: [float(run.means[-1]) for run in runs]} for name, runs in several.items()}
    for name, runs in several.items():
        best = [run.mean_of_five_best for run in runs]
        middle = bootstrap(interquartile_mean, {HOPPER: [normalise(value, HOPPER) for value in last[name][HOPPER]]})
        above = "" if name == "sac" or "sac" not in last else interval(
            bootstrap(probability_of_improvement, last[name], last["sac"])
        )  # fmt: skip
        spread = " | ".join(f"{np.mean(each):,.0f} ± {np.std(each):,.0f}" for each in (best, last[name][HOPPER]))
        lines.append(f"| {STUDY[name]} | {len(runs)} | {spread} | {interval(middle)} | {above} |")
    return "\n".join(lines)


def bias(variants: dict[str, list[Run]]) -> str:
    """What `mepg inspect` found, of the runs that were inspected."""
    lines = ["| | seed | Q less what followed | error | spread | in the 50 % band | in the 95 % band |"]
    lines.append("| --- |" + " ---: |" * 6)
    for name, runs in variants.items():
        for seed, found in inspected(runs):
            bands = " | ".join(f"{found.covered[level]:.0%}" if found.covered else "" for level in (0.5, 0.95))
            numbers = f"{found.bias:+.3g} | {found.error:.3g} | {found.spread:.3g}"
            lines.append(f"| {STUDY[name]} | {seed} | {numbers} | {bands} |")
    return "\n".join(lines)


def draw(runs: list[Run]) -> None:
    """Curves of the paper's tasks, of the study and of each backend; and what the critics believe."""
    rows, variants = runs_of_tables(runs), study(runs)
    draw_variants(IMAGES / "study.png", {STUDY[name]: seeds for name, seeds in variants.items()}, STUDY["me-sac"])
    draw_beliefs(IMAGES / "beliefs.png", rows, FOUR_TASKS)
    curves = {
        "backends": curves_of({BACKENDS[name]: seeds for name, seeds in study(runs, BACKENDS).items()}),
        "study-hours": curves_of({STUDY[name]: variants[name] for name in TIMED}).over_hours,
    }
    # All at once, so that a row has the same colour in every picture.
    all_rows = curves_of({label: [*chain(*by_env.values())] for label, by_env in rows.items()})
    for name, labels in PICTURES.items():
        panels = {env: [curve for curve in panel if curve.label in labels] for env, panel in all_rows.panels.items()}
        curves[name] = all_rows._replace(panels=panels)
    curves["tasks-hours"] = curves["tasks"].over_hours
    for name, figure in curves.items():
        write_atomic(IMAGES / f"{name}.png", draw_curves(figure, over_hours=name.endswith("-hours"))["png"])


def curves_of(rows: dict[str, list[Run]]) -> Curves:
    """A panel for each of the four tasks that has runs."""
    return make_curves("", "", rows, envs=FOUR_TASKS)


def films(runs: list[Run]) -> Iterator[tuple[Folder, Path]]:
    """The runs that are filmed, and where their films go."""
    for env, seeds in runs_of_tables(runs)["ME-SAC"].items():
        if seeds:
            yield Folder(best(seeds).path), IMAGES / f"{short_name(env).lower()}.gif"


def best(runs: Iterable[Run]) -> Run:
    """The run that ends highest."""
    return max(runs, key=lambda run: run.means[-1])


if __name__ == "__main__":
    found = published()
    if "--new" in sys.argv:
        tidy(found)
    draw(found)
    for page, text in pages(found).items():
        write_atomic(page, text.encode())
    for folder, path in films(found) if "--films" in sys.argv else ():
        film(folder, path)
