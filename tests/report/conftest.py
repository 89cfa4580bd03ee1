"""One report from made-up runs, written once: most tests only look at it."""

import pytest

from mepg.paper.experiments import jobs, select
from mepg.paper.report import write_report

from .by_hand import make, write_run

HOPPER, WALKER = "HopperBulletEnv-v0", "Walker2DBulletEnv-v0"
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> $\\frac{ \ud800 |"
)
LEVELS = {"me-sac": 2500.0, "sac": 2200.0, "td3": 2100.0}


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    """3 algorithms, 2 tasks, 2 seeds; of one a seed is missing, of another one is unfinished; and what is not right."""
    folder = tmp_path_factory.mktemp("report") / "results"
    for job in jobs(select("table1", "smoke", only=LEVELS, envs=[HOPPER, WALKER]), folder):
        algorithm, seed = job.config.algorithm, job.config.seed
        if (algorithm, seed) != ("sac", 1):
            unfinished = (algorithm, seed) == ("td3", 1)
            write_run(
                job.folder,
                job.config,
                level=LEVELS[algorithm],
                finished=not unfinished,
                share=2 / 3 if unfinished else 1,
                rows=["100,50,0.0", "200,50,0.0", "300,50,9.0"] if algorithm != "td3" else None,
            )
    write_run(folder / "mine", make("sac", "Pendulum-v1", settings=["warmup=10"]))
    write_run(folder / "<img src=x onerror=alert(1)>", make("sac", HOSTILE), finished=False, share=0.5)
    write_run(folder / "damaged", make("td3"))
    (folder / "damaged" / "run.json").write_text('{"format": "<b>')
    (folder / "empty").mkdir()
    return write_report([folder], folder.parent / "page" / "report.html")
