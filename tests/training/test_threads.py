"""How many cores a process may use."""

import os

import jax
import pytest

from mepg.errors import UsageError
from mepg.training.threads import limit_threads


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
