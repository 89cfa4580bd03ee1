"""One run in a process of its own: `python -m mepg.scheduler.worker`, with the job as JSON on standard input.

Ends with 0 when the run is finished, 1 when it failed and would fail again, 2 when it cannot be begun, and
128 + n when signal n stopped it, saved; a second signal ends it at once.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mepg.process import cli_environment, exit_status, foreign_code, lasting_output, leave
from mepg.signals import ending_at_once, status_of, stopping
from mepg.system import end_with_parent, pin

if TYPE_CHECKING:
    from mepg.storage.folder import Folder

SAY_EVERY = 0.5  # seconds between two reports of progress
PATIENCE = 60.0  # seconds for a run to save what it has, once it is asked to stop


def main() -> int:
    """Carry out the job: from the beginning, or from the last checkpoint."""
    end_with_parent()  # nobody would watch the run any more
    told: dict[str, Any] = json.load(sys.stdin)
    if told["core"] is not None:
        pin({told["core"]})
    from mepg.storage.compilation_cache import configure_jax

    configure_jax(told["config"]["threads"])
    import numpy as np

    from mepg.algos import import_named
    from mepg.run.session import Session
    from mepg.scheduler.jobs import Job, Progress
    from mepg.storage.folder import Folder
    from mepg.training.config import Config, SessionOptions

    with foreign_code:
        import_named(told["config"]["algorithm"])  # whoever started this process has imported it too
    job = Job(Config.from_json(told["config"]), Path(told["folder"]))
    wait_for_predecessor(Folder(job.folder))
    if job.finished():
        return 0
    options = SessionOptions(checkpoint_every=min(SessionOptions.checkpoint_every, job.config.eval_every))
    with Session(job.config, job.folder, options) as session, stopping(session.stop) as stop:
        for note in session.notes:
            print(f"mepg: {note}", flush=True)
        said, last_return = 0.0, None
        for record in session:
            if record.evaluation is not None:
                last_return = float(np.mean([episode.total for episode in record.evaluation]))
            if time.monotonic() - said > SAY_EVERY:
                said = time.monotonic()
                job.say_progress(Progress(record.step, last_return))
        job.progress_file.unlink(missing_ok=True)
        return 0 if stop.by is None else status_of(stop.by)


def wait_for_predecessor(folder: Folder) -> None:
    """A worker whose parent was killed may still be saving this run, when the same command has been given again."""
    deadline = time.monotonic() + PATIENCE
    while folder.in_use() and time.monotonic() < deadline:
        time.sleep(0.1)


if __name__ == "__main__":
    with cli_environment(), lasting_output(), ending_at_once():
        leave(exit_status(main))
