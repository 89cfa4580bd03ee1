"""One run in a process of its own: `python -m mepg.scheduler.worker`, with the job as JSON on standard input.

Exit status: 0 when the run is finished, 1 when it failed and would fail again, 2 when it cannot start, and 128 + n when
signal n stopped it after it was saved. A second signal ends the process at once.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mepg.process import cli_environment, exit_now, exit_status, foreign_code, unfailing_output
from mepg.signals import exit_on_signal, signal_exit_status, stop_on_signal
from mepg.system import end_with_parent, pin

if TYPE_CHECKING:
    from mepg.storage.folder import Folder

PROGRESS_INTERVAL = 0.5  # seconds between two reports of progress
STOP_TIMEOUT = 60.0  # seconds that a run has to save itself, once it is asked to stop


def main() -> int:
    """Carry out the job, from its beginning or from its last checkpoint."""
    request: dict[str, Any] = json.load(sys.stdin)
    end_with_parent(request["parent"])  # nobody would watch the run any more
    if request["core"] is not None:
        pin({request["core"]})
    from mepg.storage.compilation_cache import configure_jax

    configure_jax(request["config"]["threads"])
    import numpy as np

    from mepg.algos import import_named
    from mepg.run.session import Session
    from mepg.scheduler.jobs import Job, Progress
    from mepg.storage.folder import Folder
    from mepg.training.config import Config, SessionOptions

    with foreign_code:
        import_named(request["config"]["algorithm"])  # the process that started this one has imported it too
    job = Job(Config.from_json(request["config"]), Path(request["folder"]))
    wait_for_predecessor(Folder(job.folder))
    if job.finished():
        return 0
    options = SessionOptions(checkpoint_every=min(SessionOptions.checkpoint_every, job.config.eval_every))
    with Session(job.config, job.folder, options) as session, stop_on_signal(session.stop) as stop:
        for note in session.notes:
            print(f"mepg: {note}", flush=True)
        reported_at, last_return = 0.0, None
        for record in session:
            if record.evaluation is not None:
                last_return = float(np.mean([episode.return_ for episode in record.evaluation]))
            if time.monotonic() - reported_at > PROGRESS_INTERVAL:
                reported_at = time.monotonic()
                job.write_progress(Progress(record.step, last_return))
        job.progress_file.unlink(missing_ok=True)
        return 0 if stop.by is None else signal_exit_status(stop.by)


def wait_for_predecessor(folder: Folder) -> None:
    """Wait while another worker still saves this run: its parent was killed, and the same command was given again."""
    deadline = time.monotonic() + STOP_TIMEOUT
    while folder.in_use() and time.monotonic() < deadline:
        time.sleep(0.1)


if __name__ == "__main__":
    with cli_environment(), unfailing_output(), exit_on_signal():
        exit_now(exit_status(main))
