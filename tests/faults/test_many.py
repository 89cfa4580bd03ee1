"""A thousand runs in one folder: listed, and made into a page."""

import json
import resource
import subprocess
import sys
import time

import pytest

from mepg.paper.tasks import PAPER_TASKS
from mepg.training.config import Config
from tests.report.by_hand import write_run

ALGORITHMS = ["me-sac", "me-ddpg", "sac", "td3", "ddpg", "redq", "sunrise", "ace", "droq", "me-sac-r"]


# What the system says of a process that has ended counts the one that forked it too, and pytest's have grown by then.
RUN = """
import re, sys
from pathlib import Path
from mepg.cli import main
status = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1], file=sys.stderr)
sys.exit(status)
"""


def run_mepg(*argv, cwd):
    """What it prints as JSON, and the most memory that it takes, in bytes."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    command = [sys.executable, "-c", RUN, *argv, "--json"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    memory = int(done.stderr.split()[-1]) * 1024
    seconds = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    print(f"mepg {argv[0]}: {seconds[0]:.1f} s, {seconds[1]:.1f} s of a core, {memory / 1e6:.0f} MB")
    return json.loads(done.stdout), memory


@pytest.mark.faults
def test_a_thousand_runs_are_listed_and_reported(tmp_path, capsys):
    """Each with the 200 evaluations of a million steps, as in the paper."""
    for algorithm in ALGORITHMS:
        for env in list(PAPER_TASKS)[:5]:
            for seed in range(20):
                write_run(tmp_path / "runs" / f"{algorithm}-{env}-{seed}", Config.make(algorithm, env=env, seed=seed))
    with capsys.disabled():
        listed, memory = run_mepg("list", "runs", cwd=tmp_path)
        assert len(listed["runs"]) == 1000
        assert memory < 1e9
        report, memory = run_mepg("report", "runs", cwd=tmp_path)
        assert (report["runs"], report["problems"]) == (1000, [])
        assert memory < 1e9
