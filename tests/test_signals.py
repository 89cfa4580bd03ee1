"""Ctrl-C and SIGTERM. Real ones at random moments of real runs are in tests/faults and tests/run/test_resume.py."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from mepg.signals import exit_on_signal, exits_on_signal, interrupt_between_steps, signal_exit_status, stop_on_signal
from mepg.storage.files import acquire, open_lock
from tests.run.processes import assert_gone

HANDLED = (signal.SIGINT, signal.SIGTERM)


def handlers():
    return [signal.getsignal(number) for number in HANDLED]


@pytest.mark.parametrize("number", HANDLED)
def test_the_first_signal_is_noted_and_acted_on(number):
    before, seen = handlers(), []
    with stop_on_signal(seen.append) as stop:
        assert stop.by is None
        os.kill(os.getpid(), number)
        assert (stop.by, seen) == (number.name, [number])
    assert signal_exit_status(stop.by) == 128 + number
    assert handlers() == before


def test_the_second_ends_at_once_with_a_word():
    code = (
        "import os, signal\n"
        "from mepg.signals import stop_on_signal\n"
        "with stop_on_signal():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('saving', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print('not reached')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, "saving\n")
    assert ended.stderr == "mepg: interrupted; what was saved is safe\n"


def test_whether_it_would_end_at_once_is_known():
    assert not exits_on_signal()
    with exit_on_signal():
        assert exits_on_signal()
        with stop_on_signal():
            assert not exits_on_signal()
        assert exits_on_signal()
    assert not exits_on_signal()


@pytest.fixture
def ctrl_c():
    """As in a terminal: a process in the background begins with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_for_the_end_of_a_step_and_a_second_one_does_not(ctrl_c):
    steps = []
    with pytest.raises(KeyboardInterrupt), interrupt_between_steps() as check:
        check()
        os.kill(os.getpid(), signal.SIGINT)
        steps.append("whole")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        check()
        steps.append("another")
    assert steps == ["whole"]
    with pytest.raises(KeyboardInterrupt), interrupt_between_steps():
        os.kill(os.getpid(), signal.SIGINT)  # in the last step
        steps.append("last")
    assert steps == ["whole", "last"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_the_same_step_does_not_hide_ctrl_c(ctrl_c):
    """In a terminal it also ends the processes of an environment, whose next step then fails."""
    with pytest.raises(KeyboardInterrupt) as interrupted, interrupt_between_steps():
        os.kill(os.getpid(), signal.SIGINT)
        raise EOFError("a process has ended")
    assert isinstance(interrupted.value.__cause__, EOFError)
    with pytest.raises(EOFError), interrupt_between_steps():
        raise EOFError("of its own")


def test_what_is_to_be_cleaned_up_is_also_when_a_signal_ends_the_process():
    code = (
        "import os, signal\n"
        "from mepg.signals import cleaning_up, exit_on_signal\n"
        "say = lambda word: os.write(1, word)\n"
        "with exit_on_signal():\n"
        "    with cleaning_up(lambda: say(b'done ')):\n"
        "        pass\n"
        "    with cleaning_up(lambda: say(b'outer')), cleaning_up(lambda: 1 / 0):\n"
        "        with cleaning_up(lambda: say(b'inner ')):\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGINT, "done inner outer")


def test_a_signal_waits_while_a_process_is_started():
    """Its clean-up is known by then, and is carried out."""
    code = """
import os, signal
from mepg.signals import cleaning_up, exit_deferred, exit_on_signal
with exit_on_signal():
    with exit_deferred():
        os.kill(os.getpid(), signal.SIGTERM)
        print("started", flush=True)
        cleaned = cleaning_up(lambda: print("cleaned up", flush=True))
        cleaned.__enter__()
    print("not reached", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (143, "started\ncleaned up\n")


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGTERM)", "raise SystemExit(143)"])
def test_process_groups_end_with_us(end, tmp_path):
    """All of them, with what they have started, also while something is read from one."""
    code = """
import os, signal, subprocess, sys, threading, time
from mepg.signals import exit_on_signal, process_group
command = ["sh", "-c", "sleep 1000 & echo $$ $!; wait"]
with exit_on_signal(), process_group(command, stdout=subprocess.PIPE, text=True) as first:
    with process_group(command, stdout=subprocess.PIPE, text=True) as second:
        print(first.stdout.readline(), second.stdout.readline(), flush=True)
        if "kill" in sys.argv[1]:
            threading.Timer(0.2, lambda: exec(sys.argv[1])).start()
            second.stdout.read()
        exec(sys.argv[1])
"""
    done = subprocess.run([sys.executable, "-c", code, end], capture_output=True, text=True)
    assert (done.returncode, len(done.stdout.split())) == (143, 4), done.stderr
    assert_gone(map(int, done.stdout.split()))


def test_elsewhere_ctrl_c_is_left_to_others(monkeypatch):
    with stop_on_signal(), interrupt_between_steps() as check:  # which handle it already
        os.kill(os.getpid(), signal.SIGINT)
        check()
    errors = []

    def in_a_thread():
        try:
            with interrupt_between_steps() as check:  # where no handler can be set
                check()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert errors == []


# What an environment may do in a step. `square` has to be where a worker finds it.
FORKS = """
import multiprocessing, os, signal, sys, time
from pathlib import Path
from mepg.storage.files import acquire, open_lock
from mepg.signals import exit_on_signal, interrupt_between_steps, stop_on_signal

signal.signal(signal.SIGINT, signal.default_int_handler)
pools = multiprocessing.get_context("fork")
def square(x): return x * x
"""


@pytest.mark.parametrize("inside", ["exit_on_signal()", "stop_on_signal()", "exit_on_signal(), stop_on_signal()"])
def test_a_pool_of_forked_processes_can_end(inside):
    """Each of its workers is sent SIGTERM, often before it has begun, and waited for."""
    code = f"""{FORKS}
for _ in range(20):
    with {inside}, pools.Pool(3) as pool:
        assert pool.map(square, [2, 3]) == [4, 9]
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize("inside", ["stop_on_signal()", "interrupt_between_steps()"])
def test_ctrl_c_in_a_terminal_leaves_an_environment_its_processes(inside):
    """It reaches all of them, and the step under way still needs them."""
    code = f"""{FORKS}
try:
    with {inside}, pools.Pool(2) as pool:
        pool.map(square, [1])
        os.killpg(0, signal.SIGINT)
        time.sleep(0.5)
        print(pool.map(square, [2, 3]))
except KeyboardInterrupt:
    print("interrupted")
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60, start_new_session=True
    )
    assert ended.stdout == "[4, 9]\n" + "interrupted\n" * (inside != "stop_on_signal()")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_process_that_an_environment_left_behind_holds_no_lock(tmp_path):
    code = f"""{FORKS}
lock = acquire(open_lock(Path("lock")))
if os.fork() == 0:
    Path("begun").touch()
    time.sleep(60)
while not Path("begun").exists():
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""
    first = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, start_new_session=True)
    assert first.wait(60) == -signal.SIGKILL
    try:
        with open_lock(tmp_path / "lock") as lock:
            acquire(lock)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
