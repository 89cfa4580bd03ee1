"""The same runs on a Ray cluster: two nodes, each a raylet of its own, one of which is killed in the middle."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mepg.errors import UsageError
from mepg.scheduler.local import Local
from mepg.scheduler.ray import Ray
from tests.run.processes import PATH, assert_same_run
from tests.scheduler.runs import Looking, carry_out, job

STEPS = 4000  # long enough for both to be under way when the node dies
RAY = Path(sys.executable).parent / "ray"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not RAY.exists(), reason="Ray is not installed: pip install 'mepg[ray]'"),
]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def listens(port):
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture
def cluster(tmp_path):
    """A head and a second node; gives the head's address and the second node's processes."""
    port = free_port()
    environment = {**os.environ, "RAY_health_check_failure_threshold": "2", "RAY_health_check_period_ms": "1000"}
    environment["PYTHONPATH"] = PATH
    nodes = []
    start = [str(RAY), "start", "--block", "--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats"]
    for where in (["--head", f"--port={port}", "--include-dashboard=false"], [f"--address=127.0.0.1:{port}"]):
        with (tmp_path / f"node{len(nodes)}.log").open("wb") as log:
            command = [*start, *where]
            nodes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))
        wait_for(lambda: listens(port))
    yield f"127.0.0.1:{port}", nodes[1]
    for node in reversed(nodes):
        with_children(node.pid, signal.SIGKILL)
        node.wait()


def with_children(pid, number):
    """Signal a process and all that it started, leaves first."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    for child in children:
        with_children(int(child), number)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def test_a_node_dies_and_its_run_moves(cluster, tmp_path):
    address, second = cluster
    engine = Ray(address)
    try:
        wait_for(lambda: engine.capacity() == 2)
        wanted = [job(tmp_path / f"ray{seed}", seed=seed, steps=STEPS) for seed in (0, 1)]
        looking = Looking(lambda _: with_children(second.pid, signal.SIGKILL))
        assert carry_out(wanted, engine, tmp_path / "logs", looking, lambda: False) == []
        assert looking.acted
        assert max(going_on for going_on, _, _ in looking.seen) == 2
    finally:
        engine.close()
    assert all(one.finished() for one in wanted)
    assert any("resumed at step" in log.read_text() for log in (tmp_path / "logs").iterdir())
    here = [job(tmp_path / f"local{seed}", seed=seed, steps=STEPS) for seed in (0, 1)]
    assert carry_out(here, Local(2), tmp_path / "logs", Looking(), lambda: False) == []
    for seed in (0, 1):
        assert_same_run(tmp_path / f"local{seed}", tmp_path / f"ray{seed}")


def test_no_cluster_there():
    with pytest.raises(UsageError, match="no Ray cluster"):
        Ray("127.0.0.1:1")
