"""A thousand runs in one folder: listed, and made into a page."""

import json
import os
import subprocess
import sys
import time

import pytest

from mepg.paper.tasks import PAPER_TASKS
from mepg.training.config import Config
from tests.report.by_hand import write_run

ALGORITHMS = ["me-sac", "me-ddpg", "sac", "td3", "ddpg", "redq", "sunrise", "ace", "droq", "me-sac-r"]


def run_mepg(*argv, cwd):
    """What it prints as JSON, and the most memory that it takes, in bytes."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "mepg", *argv, "--json"], cwd=cwd, stdout=subprocess.PIPE)
    with process.stdout:
        answer = json.load(process.stdout)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    memory = usage.ru_maxrss * 1024
    print(f"mepg {argv[0]}: {time.monotonic() - began:.1f} s, {usage.ru_utime:.1f} s of a core, {memory / 1e6:.0f} MB")
    return answer, memory


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
