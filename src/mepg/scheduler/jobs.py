"""A run that is wanted, and how far it has come."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from mepg.storage.folder import Folder
from mepg.training.config import Config


class Job(NamedTuple):
    """A run that is wanted, and its folder."""

    config: Config
    folder: Path

    def finished(self) -> bool:
        """Whether it is already there; a UsageError if something else is."""
        return Folder(self.folder).finished(self.config) is not None

    @property
    def progress_file(self) -> Path:
        """Hidden, and so no part of the run."""
        return self.folder / ".progress"

    def progress(self) -> Progress:
        """What its process last reported; step 0 if there is no report. Nothing depends on it."""
        with contextlib.suppress(OSError, ValueError, TypeError, OverflowError, RecursionError):
            step, last_return = json.loads(self.progress_file.read_text())
            return Progress(int(step), None if last_return is None else float(last_return))
        return Progress(0, None)

    def say_progress(self, progress: Progress) -> None:
        """Report progress in a file, for whoever watches, on this machine or another. It is never half written."""
        aside = self.progress_file.with_name(f".progress-{os.getpid()}")
        with contextlib.suppress(OSError):  # on a full disk there is no report, but the run continues
            aside.write_text(json.dumps(progress))
            aside.replace(self.progress_file)


class Progress(NamedTuple):
    """How far a run has come."""

    step: int
    last_return: float | None  # the mean of its last evaluation
