"""A long run holds its memory and its open files."""

import os
from pathlib import Path

import pytest

from tests.run.processes import command, newest, start, tensorboard, wait_for

pytestmark = pytest.mark.faults

STEPS, REPLAY, SETTLED = 200_000, 20_000, 40_000  # settled: the ring has wrapped, and everything is compiled


def resident(pid):
    """Bytes of memory that a process really has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_and_files(tmp_path, count):
    settings = [f"replay_size={REPLAY}", "hidden=8", "batch_size=8", "warmup=1000"]
    extra = ["--checkpoint-every", "2000", "--eval-every", "2000", "--eval-episodes", "2"]
    folder = tmp_path / "run"
    process = start(command("me-ddpg", "Pendulum-v1", folder, steps=STEPS, settings=settings, extra=extra))
    seen = {}  # step -> memory, open files
    for step in range(SETTLED, STEPS, 10_000):
        assert wait_for(lambda step=step: newest(folder) >= step, process, pause=0.1), process.communicate()
        seen[newest(folder)] = resident(process.pid), len(os.listdir(f"/proc/{process.pid}/fd"))
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert len(tensorboard(folder)["eval/mean_reward"]) == STEPS / 2000
    memory, files = zip(*seen.values(), strict=True)
    count(
        soak_megabytes_when_settled=memory[0] // 2**20,
        soak_megabytes_at_most_afterwards=max(memory) // 2**20,
        soak_open_files_when_settled=files[0],
        soak_open_files_at_most_afterwards=max(files),
    )
    assert max(memory) <= 1.05 * memory[0], seen
    assert max(files) <= files[0] + 2, seen  # those that are open for a moment while a checkpoint is written
