"""Ctrl-C and SIGTERM. Real ones at random moments of real runs are in tests/faults and tests/run/test_resume.py."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from mepg.signals import ending_at_once, ends_at_once, interrupt_between_steps, status_of, stopping

HANDLED = (signal.SIGINT, signal.SIGTERM)


def handlers():
    return [signal.getsignal(number) for number in HANDLED]


@pytest.mark.parametrize("number", HANDLED)
def test_the_first_signal_is_noted_and_acted_on(number):
    before, seen = handlers(), []
    with stopping(seen.append) as stop:
        assert stop.by is None
        os.kill(os.getpid(), number)
        assert (stop.by, seen) == (number.name, [number])
    assert status_of(stop.by) == 128 + number
    assert handlers() == before


def test_the_second_ends_at_once_with_a_word():
    code = (
        "import os, signal\n"
        "from mepg.signals import stopping\n"
        "with stopping():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('saving', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print('not reached')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, "saving\n")
    assert ended.stderr == "mepg: interrupted; what was saved is safe\n"


def test_whether_it_would_end_at_once_is_known():
    assert not ends_at_once()
    with ending_at_once():
        assert ends_at_once()
        with stopping():
            assert not ends_at_once()
        assert ends_at_once()
    assert not ends_at_once()


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


def test_elsewhere_ctrl_c_is_left_to_others(monkeypatch):
    with stopping(), interrupt_between_steps() as check:  # which handle it already
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
