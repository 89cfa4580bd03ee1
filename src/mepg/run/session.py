"""One session of a run, from start to stop: open or resume its folder, take the steps, store what they give."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import jax
import numpy as np

from mepg.envs.spaces import Spaces
from mepg.envs.watchdog import Watchdog
from mepg.errors import RunFailure, UsageError, with_cause
from mepg.storage.checkpoint import Checkpoint, Checkpoints, TimeSpent
from mepg.storage.data import with_data
from mepg.storage.files import (
    Checksum,
    Damaged,
    Unreadable,
    checksum,
    path_exists,
    read_prefix,
    read_whole,
    write_atomic,
)
from mepg.storage.folder import Folder, versions
from mepg.storage.identity import Identity
from mepg.storage.logs import open_logs, require_known_logs
from mepg.storage.policy import best_step, save_best, save_policy
from mepg.training.assembly import open_loop
from mepg.training.config import Config, SessionOptions
from mepg.training.data import Data
from mepg.training.evaluate import mean_return
from mepg.training.loop import Evaluations, Record
from mepg.words import many


class Session:
    """Iterate over it to carry out a run, step by step. It writes results, metrics and checkpoints.

    In a folder with an unfinished run, or a shorter one, it continues from the last checkpoint, and ends with the same
    bits as a run that never stopped.
    """

    def __init__(
        self, config: Config, path: Path, options: SessionOptions | None = None, data: Data | None = None
    ) -> None:
        """`data`: the config's, if it has any and they have been read already."""
        self._options = options or SessionOptions()
        if data is None:
            config, data = with_data(config)
        require_known_logs(self._options.log)
        self.folder = Folder(path)
        if self.folder.summary_if_finished(config) is not None:
            raise UsageError(f"{path} holds this run, finished: there is nothing left to do")
        if config.backend == "auto" and path_exists(self.folder.config_file):
            config = replace(config, backend=self.folder.config().backend)  # a run keeps the one it began with
        self.config = config
        self._require_replay()
        self.result: dict[str, float] | None = None  # until the run is finished
        self.latest: dict[str, float] = {}  # the latest value of every metric
        self.notes: list[str] = []  # for the user
        self.stopped_by: str | None = None  # the signal's name, if one ended this session
        self._open = contextlib.ExitStack()
        with self._open:  # closes what was opened, if anything goes wrong
            self._prepare(data)
            self._open = self._open.pop_all()

    def _prepare(self, data: Data | None) -> None:
        watchdog = None
        if (limit := self._options.step_timeout) is not None:
            watchdog = self._open.enter_context(contextlib.closing(Watchdog(limit, self.config.env)))
        self._watchdog = watchdog
        try:
            with _memory_errors_of_jax():
                self.loop = self._open.enter_context(open_loop(self.config, watchdog, data))
        except MemoryError as error:
            hint = "a smaller replay buffer needs less: --set replay_size=N"
            raise UsageError(f"{with_cause('this run does not fit into memory', error)}; {hint}") from None
        self.config = self.loop.config
        spaces = self.loop.envs.spaces
        legal = f"{self.config.env} says which actions are legal: no other is chosen" if spaces.sizes.n_legal else ""
        self.notes += [note for note in (spaces.observations.note, legal, self.loop.note) if note]
        self._note_statistics()
        self.checkpoints = Checkpoints(self.folder.path, self.config)
        self._open.enter_context(self.folder.claim(self.config, spaces))  # the first thing that is written
        self._require_the_same_environment(spaces)
        self._note_changed_versions()
        self._began, self._processor_began = time.monotonic(), time.process_time()
        self._resume()
        self._remove_shorter_runs_files()
        self._tell_watchdog(self.loop.step + self.config.envs)
        self.started_at = self.loop.step
        self._tick = (self.loop.step, self._began)

        columns = ["time/total_timesteps", "rollout/ep_rew_mean", "rollout/ep_len_mean"]
        columns += [f"train/{name}" for name in self.loop.metric_names]
        columns += ["train/n_updates", "time/fps", "time/processor_seconds"]
        self._logs = open_logs(
            self._options.log, self.folder.path, columns, self.loop.step, self.config.to_json(), self._open
        )

    def _require_replay(self) -> None:
        """Refuse to continue a finished run whose replay buffer was not kept."""
        folder = self.folder
        if not path_exists(folder.policy_file) or path_exists(folder.replay_folder):
            return
        if not path_exists(folder.result_file):
            raise UsageError(f"{folder.path} holds a finished run, but its {folder.result_file.name} is gone")
        done = many(folder.config().steps, "step")
        raise UsageError(
            f"{folder.path} holds this run, finished after {done} without --keep-replay: it cannot be made longer; "
            "choose another --out"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exception_type: type[BaseException] | None, *_: object) -> None:
        try:
            self._open.close()
        except OSError:  # a log that could not be written cannot be closed either: the first error is enough
            if exception_type is None:
                raise

    def __iter__(self) -> Iterator[Record]:
        try:
            with _memory_errors_of_jax():
                yield from self._records()
        except OSError as error:
            raise self._failure(f"{self.folder.path} cannot be written: {error.strerror or error}") from None
        except (Damaged, Unreadable) as damage:  # metrics.csv, whose checksum goes into a checkpoint
            raise self._failure(str(damage)) from None
        except MemoryError as error:
            raise self._failure(with_cause("there is not enough memory", error)) from None

    def _records(self) -> Iterator[Record]:
        try:
            for record in self.loop:
                self._tell_watchdog(record.step + self.config.envs)
                self._write_record(record)
                yield record
                if self.stopped_by is not None or record.step % self._options.checkpoint_every < self.config.envs:
                    self._save_checkpoint()
                if self.stopped_by is not None:
                    return
        except RunFailure:
            if self.stopped_by is None:
                raise
            # Ctrl-C in a terminal, or a cluster's SIGTERM, also reaches the processes that an environment has started.
            # If one of them ends, so does the step under way; what there was before it is saved.
            if self.loop.between_steps and self.saved_at != self.loop.step:
                self._save_checkpoint()
            return
        self._finish()

    def _failure(self, reason: str) -> RunFailure:
        """The error for a failure of the machine, not of the run."""
        saved = "what was saved before is intact, and the same command continues from there"
        return RunFailure(f"step {self.loop.step}: {reason}; {saved}")

    def stop(self, signum: int) -> None:
        """Save after the step under way, and end: for a signal's handler."""
        self.stopped_by = signal.Signals(signum).name

    def _tell_watchdog(self, step: int) -> None:
        """Which step comes next, so that its message can name the step that hung."""
        if self._watchdog is not None:
            self._watchdog.at_step(step)

    def _write_record(self, record: Record) -> None:
        if record.metrics is not None:
            times = {"time/fps": self._speed(), "time/processor_seconds": round(self._spent().processor, 2)}
            self._log(record.metrics | times, record.step)
        if record.evaluation is not None:
            self.folder.write_evaluations(self.config, self.loop.evaluations)
            total, length = map(float, np.mean(record.evaluation, axis=0))
            *earlier, last = mean_returns(self.loop.evaluations)
            if all(last > mean for mean in earlier):
                if record.step % self.config.eval_every:
                    self._set_best_aside()
                identity = Identity(self.config, self.loop.envs.spaces)
                save_best(self.folder, identity, self.loop.state, record.step, last)
            self._log({"eval/mean_reward": total, "eval/mean_ep_length": length}, record.step)

    def _log(self, row: dict[str, float], step: int) -> None:
        self.latest |= {"time/total_timesteps": step, **row}
        for log in self._logs:
            log.add(row, step)

    def _speed(self) -> float:
        (step, then), now = self._tick, time.monotonic()
        self._tick = (self.loop.step, now)
        return round((self.loop.step - step) / max(now - then, 1e-9), 1)

    def _spent(self) -> TimeSpent:
        earlier, loop = self._earlier, self.loop
        return TimeSpent(
            total=earlier.total + time.monotonic() - self._began,
            evaluating=earlier.evaluating + loop.seconds_evaluating,
            processor=earlier.processor
            + time.process_time()
            - self._processor_began
            - loop.processor_seconds_evaluating,
        )

    def _save_checkpoint(self) -> None:
        for log in self._logs:
            log.sync()  # a checkpoint promises that what came before it is kept
        self.checkpoints.save(
            Checkpoint(self.loop.snapshot(), self._spent(), checksum(self.folder.metrics_file)), self.loop.replay
        )
        self.saved_at = self.loop.step

    def _resume(self) -> None:
        """Go back to the newest checkpoint that is whole."""
        self._earlier = TimeSpent(0.0, 0.0, 0.0)
        self.saved_at = 0  # the step of the last checkpoint
        steps, fresh = self.checkpoints.steps(), self.loop.snapshot()
        for step in steps:
            try:
                saved = self.checkpoints.load(step, fresh, self.loop.replay)
            except Damaged as damage:
                self.notes.append(f"the checkpoint of step {step:,} is damaged ({damage}); trying the one before it")
                continue
            self._earlier = saved.spent
            self._check_metrics(saved.metrics_checksum)
            self._tell_watchdog(step)
            if not self.loop.restore(saved.snapshot):
                self.notes.append(
                    f"{self.config.env} does not repeat an episode from its seed: the current one was started again, "
                    "so this run is not bit for bit what it would have been"
                )
            self.notes.append(f"resumed at step {step:,}")
            self.saved_at = step
            return
        if path_exists(self.folder.result_file):
            raise UsageError(f"{self.folder.path} cannot be made longer: its checkpoints are damaged")
        if steps:
            self.loop.replay.clear()
            self.notes.append("no checkpoint is intact: starting from the beginning")

    def _remove_shorter_runs_files(self) -> None:
        """Remove what a run of this length would not have had: another end, and the evaluation there.

        Whatever is left undone when the process dies is done by the next one.
        """
        folder, loop = self.folder, self.loop
        loop.evaluations = {s: played for s, played in loop.evaluations.items() if self.config.evaluates_at(s)}
        if folder.config().steps < self.config.steps:
            of_the_end = (folder.result_file, folder.policy_file, folder.curve_file)
            for path in (*of_the_end, folder.inspection_file, folder.inspection_picture):
                path.unlink(missing_ok=True)
            if loop.evaluations:
                folder.write_evaluations(self.config, loop.evaluations)
            else:
                folder.evaluations_file.unlink(missing_ok=True)
            self._open.enter_context(folder.set_steps(self.config))
        step, aside = best_step(folder), folder.earlier_best_file
        if step is None or step % self.config.eval_every == 0:
            aside.unlink(missing_ok=True)
        elif not self.config.evaluates_at(step):
            aside.replace(folder.best_file) if path_exists(aside) else folder.best_file.unlink()

    def _set_best_aside(self) -> None:
        """Keep the best policy so far: the last step's evaluation does not count if the run is made longer."""
        best, aside = self.folder.best_file, self.folder.earlier_best_file
        if path_exists(best) and not path_exists(aside):
            self.checkpoints.make_folders()
            write_atomic(aside, read_whole(best))

    def _check_metrics(self, checksum: Checksum | None) -> None:
        """A file whose rows are not those that were written is renamed; the run itself does not need it."""
        try:
            if checksum is not None:
                read_prefix(self.folder.metrics_file, checksum)
        except Damaged as damage:
            path = self.folder.metrics_file
            aside = path.with_suffix(".csv.damaged")
            if path_exists(path):
                path.rename(aside)
                self.notes.append(f"{damage}; the damaged file was renamed to {aside.name}, and a new one was started")
            else:
                self.notes.append(f"{damage}; a new one was started")

    def _require_the_same_environment(self, spaces: Spaces) -> None:
        """Refuse to resume if the observations or actions have changed: the networks would not fit them."""
        if difference := self.folder.identity().spaces.difference(spaces):
            raise UsageError(
                f"{self.config.env} has changed since this run began: it had {difference} now; "
                "change it back, or choose another --out"
            )

    def _note_statistics(self) -> None:
        assert self.loop.eval_env is not None
        if names := self.loop.eval_env.normalizing_wrappers:
            self.notes.append(
                f"{self.config.env} is wrapped in {' and '.join(names)}: evaluations have statistics of their own, and "
                "the policy is saved without any; --normalize-obs saves them, and TransformReward needs none"
            )

    def _note_changed_versions(self) -> None:
        was, now = self.folder.versions(), versions(self.config.backend)
        # Without the commit: the version of the package says more to its user.
        known = [name for name in now if name in was and name != "commit"]
        changed = [f"{name} {was[name]} -> {now[name]}" for name in known if was[name] != now[name]]
        if changed:
            self.notes.append(f"versions have changed since this run began ({', '.join(changed)}): bits may differ")

    def _finish(self) -> None:
        if self.saved_at != self.loop.step:
            self._save_checkpoint()
        save_policy(self.folder, Identity(self.config, self.loop.envs.spaces), self.loop.state, self.loop.step)
        self.folder.write_evaluations(self.config, self.loop.evaluations)
        self.result = summary(self.loop.evaluations, self._spent())
        for log in self._logs:
            log.sync()
        self.folder.finish(self.config, self.result)
        if not self._options.keep_replay:
            self.checkpoints.drop_replay()


@contextlib.contextmanager
def _memory_errors_of_jax() -> Iterator[None]:
    """JAX's error for a lack of memory, as Python's MemoryError."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(str(error).splitlines()[0]) from None


def mean_of_five_best(means: Iterable[float]) -> float:
    """The paper's metric for one run: its five largest evaluation means, averaged (D17)."""
    return float(np.mean(sorted(means, reverse=True)[:5]))


def mean_returns(evaluations: Evaluations) -> list[float]:
    """Of each evaluation."""
    return [mean_return(episodes) for episodes in evaluations.values()]


def summary(evaluations: Evaluations, spent: TimeSpent) -> dict[str, float]:
    """What a run came to: the paper's metric (D17) and the plain ones beside it."""
    means = mean_returns(evaluations)
    last_step, last = list(evaluations.items())[-1]
    return {
        "steps": last_step,
        "final_return": means[-1],
        "final_return_std": float(np.std([episode.return_ for episode in last])),
        "best_return": max(means),
        "mean_of_five_best": mean_of_five_best(means),
        "evaluations": len(means),
        "seconds": round(spent.total, 1),
        "eval_seconds": round(spent.evaluating, 1),
        "processor_seconds": round(spent.processor, 1),
    }
