"""A job: a run to carry out, its folder, and how far it has come."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from mepg.storage.folder import Folder
from mepg.training.config import Config


class Job(NamedTuple):
    """A run to carry out, and its folder."""

    config: Config
    folder: Path

    def finished(self) -> bool:
        """Whether the run is complete. A UsageError if the folder holds something else."""
        return Folder(self.folder).summary_if_finished(self.config) is not None

    @property
    def progress_file(self) -> Path:
        """A hidden file: it is not part of the run."""
        return self.folder / ".progress"

    def progress(self) -> Progress:
        """What its process last reported; step 0 without a report. For display only."""
        with contextlib.suppress(OSError, ValueError, TypeError, OverflowError, RecursionError):
            step, last_return = json.loads(self.progress_file.read_text())
            return Progress(int(step), None if last_return is None else float(last_return))
        return Progress(0, None)

    def write_progress(self, progress: Progress) -> None:
        """Report progress in a file that processes on other machines can read too. It is never half written."""
        temporary = self.progress_file.with_name(f".progress-{os.getpid()}")
        with contextlib.suppress(OSError):  # on a full disk there is no report, but the run continues
            temporary.write_text(json.dumps(progress))
            temporary.replace(self.progress_file)


class Progress(NamedTuple):
    """How far a run has come."""

    step: int
    last_return: float | None  # the mean of its last evaluation
