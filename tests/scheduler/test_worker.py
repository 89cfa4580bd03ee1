"""The process that carries out one run."""

import subprocess
import sys
import time
from threading import Thread

from mepg.errors import UsageError
from mepg.scheduler.schedule import claim
from mepg.scheduler.worker import wait_for_predecessor
from mepg.storage.folder import Folder
from tests.conftest import SPACES
from tests.scheduler.runs import job


def test_workers_end_when_nobody_is_left_to_watch(tmp_path):
    """The one who started them is killed with -9: they save and end, and the folder is free again."""
    code = (
        "from pathlib import Path; from mepg.scheduler.local import Local\n"
        "from tests.scheduler.runs import Looking, carry_out, job\n"
        "import sys; path = Path(sys.argv[1])\n"
        "carry_out([job(path / 'a', steps=100_000)], Local(1), path, Looking(), lambda: False)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    while not list((tmp_path / "a" / "checkpoints").glob("*.json")):
        assert process.poll() is None
        time.sleep(0.1)
    process.kill()
    process.wait()
    before = time.monotonic()
    while True:
        try:
            with claim(tmp_path / "a"):  # the run's own lock
                break
        except UsageError:
            assert time.monotonic() - before < 30, "the worker goes on unseen"
            time.sleep(0.1)


def test_it_waits_for_one_that_is_still_saving(tmp_path):
    run = job(tmp_path / "a")
    folder = Folder(run.folder)
    with folder.claim(run.config, SPACES):
        waiting = Thread(target=wait_for_predecessor, args=[folder])
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
    waiting.join(30)
    assert not waiting.is_alive()
