"""One run in a process of its own: `python -m mepg.engine.worker`, with the job as JSON on standard input.

Ends with 0 when the run is finished, 1 when it failed and would fail again, 2 when it cannot be begun, and
128 + n when signal n stopped it, saved; a second signal ends it at once.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import types
from pathlib import Path
from typing import Any

from mepg.errors import RunFailure, UsageError
from mepg.process import of_our_own

SAY_EVERY = 0.5  # seconds between two words about progress
PR_SET_PDEATHSIG = 1  # of Linux's prctl


def main() -> int:
    """Carry out the job."""
    stop_with_parent()
    told: dict[str, Any] = json.load(sys.stdin)
    if told["core"] is not None:
        os.sched_setaffinity(0, {told["core"]})
    from mepg.run import machine

    try:
        machine.take_over(told["config"]["threads"])
        return carry_out(told)
    except UsageError as error:
        print(f"mepg: {error}", file=sys.stderr)
        return 2
    except (RunFailure, OSError) as failure:
        print(f"mepg: {failure}", file=sys.stderr)
        return 1
    except MemoryError as error:
        print(f"mepg: there is not enough memory: {error}", file=sys.stderr)
        return 1


def carry_out(told: dict[str, Any]) -> int:
    """From the beginning, or from the last checkpoint."""
    import numpy as np

    from mepg.algos import trust
    from mepg.engine.jobs import Job, Progress
    from mepg.run.config import Config
    from mepg.run.session import CHECKPOINT_EVERY, Session

    trust(told["config"]["algorithm"])  # whoever started this process has imported it too
    job = Job(Config.from_json(told["config"]), Path(told["folder"]))
    with Session(job.config, job.folder, min(CHECKPOINT_EVERY, job.config.eval_every)) as session:

        def stop(number: int, _: types.FrameType | None) -> None:
            if session.stopped_by is not None:  # told twice: what the last checkpoint holds is safe
                os._exit(128 + number)
            session.stop(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
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
        return 0 if session.stopped_by is None else 128 + signal.Signals[session.stopped_by]


def stop_with_parent() -> None:
    """Whoever started this run may die without a word: then it is to save and end, not to go on unseen."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    with of_our_own():
        ending = main()
        sys.stdout.flush()
        os._exit(ending)  # without JAX's clean-up: the run is safe, and nothing is left that could go wrong
