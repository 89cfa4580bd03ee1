"""A time limit for calls into an environment."""

import os
import signal
import time

import pytest

from mepg.envs.watchdog import GRACE, StepTimeout, Watchdog


@pytest.mark.faults
def test_what_is_in_time_is_left_alone():
    """However long the calls take together, and whatever is done between them."""
    watchdog = Watchdog(2.0, "Slow-v0")
    try:
        time.sleep(3)
        for _ in range(6):
            with watchdog:
                time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGALRM)  # late: the call that it was meant for is over
        with watchdog:
            os.kill(os.getpid(), signal.SIGALRM)  # and another has begun
        with pytest.raises(StepTimeout), watchdog:
            time.sleep(60)
        time.sleep(GRACE + 1)  # the call has ended, and with it the reason to kill
    finally:
        watchdog.close()
