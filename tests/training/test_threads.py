"""How many cores a process may use."""

import os
import subprocess
import sys

import jax
import pytest

from mepg import system
from mepg.errors import UsageError
from mepg.training.threads import limit_threads

# Ten critics' orthogonal weights, three layers each.
INIT = """
from mepg.core.types import Sizes
from mepg.storage.compilation_cache import configure_jax
from mepg.training.config import Config
from mepg.training.program import Program

configure_jax(2)
config, sizes = Config.make("redq", env="Pendulum-v1", threads=2), Sizes(obs=28, action=8)
program = Program(config, config.build(sizes), sizes)
print(program.first_nonfinite(program.init()))
"""


@pytest.mark.parametrize("threads", [0, -1, 10_000])
def test_more_than_there_are_cannot_be_used(threads):
    with pytest.raises(UsageError, match=r"threads must be in \[1, "):
        limit_threads(threads)


def test_what_was_set_for_jax_is_the_users_again(monkeypatch):
    monkeypatch.setenv("NPROC", "7")
    before = jax.config.values["jax_cpu_enable_async_dispatch"]
    limit_threads(1)
    assert os.environ["NPROC"] == "7"
    assert jax.config.values["jax_cpu_enable_async_dispatch"] == before
    monkeypatch.delenv("NPROC")
    limit_threads(1)
    assert "NPROC" not in os.environ


@pytest.mark.skipif(len(system.cores()) < 2, reason="needs two cores")
def test_two_threads_do_not_wait_for_each_other_for_ever():
    """As they did when several networks' weights were made orthogonal at once."""
    done = subprocess.run([sys.executable, "-c", INIT], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "None\n"
