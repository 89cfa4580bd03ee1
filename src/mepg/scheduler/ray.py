"""The Ray engine: runs on a cluster. Their folders are on a path that all nodes share."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Any

from mepg.algos import import_named
from mepg.errors import UsageError
from mepg.scheduler.jobs import Job
from mepg.scheduler.local import Process
from mepg.scheduler.schedule import MAX_ATTEMPTS, POLL_INTERVAL
from mepg.storage.files import JsonObject
from mepg.training.config import Config

KILLED = -9


class Task:
    """A run somewhere on the cluster."""

    def __init__(self, ray: Any, reference: object) -> None:
        self._ray, self._reference = ray, reference

    def poll(self) -> int | None:
        ready, _ = self._ray.wait([self._reference], timeout=0)
        if not ready:
            return None
        try:
            return int(self._ray.get(self._reference))
        except self._ray.exceptions.RayError:  # its node is gone, and Ray's retries have failed too
            return KILLED

    def stop(self) -> None:
        self._ray.cancel(self._reference)


class Ray:
    """As many runs at once as the cluster has processors now; nodes may come and go."""

    def __init__(self, address: str | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise UsageError("--engine ray needs Ray: pip install 'mepg[ray]'") from None
        self._ray: Any = ray
        _check_reachable(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UsageError(f"no Ray cluster at {address}: {str(error).splitlines()[0]}") from None
        self._run_on_node = ray.remote(num_cpus=1, max_retries=MAX_ATTEMPTS)(run_on_node)

    def capacity(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))

    def launch(self, job: Job, log: Path) -> Task:
        arguments = job.config.to_json(), str(job.folder.resolve()), str(log.resolve())
        return Task(self._ray, self._run_on_node.options(name=job.folder.name).remote(*arguments))

    def close(self) -> None:
        self._ray.shutdown()


def _check_reachable(address: str | None) -> None:
    """Refuse an address where nothing answers: Ray would wait for minutes, and then end the process."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not port.isdigit():  # a word that Ray knows, such as auto
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise UsageError(f"no Ray cluster at {address}: {error.strerror or error}") from None


def run_on_node(config: JsonObject, folder: str, log: str) -> int:
    """Executed on a node: start the same process as the local engine does, and return its exit status."""
    import_named(config["algorithm"])
    process = Process(Job(Config.from_json(config), Path(folder)), Path(log), None)
    try:
        return process.wait(POLL_INTERVAL)
    finally:  # if the task was cancelled, let the run save itself
        process.stop()
        process.wait(POLL_INTERVAL)
