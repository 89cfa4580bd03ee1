"""A compiler, if there is one, and what is said when it fails."""

import json

import numpy as np
import pytest

from mepg.cli import main
from mepg.errors import RunFailure
from mepg.export import compiled
from mepg.native import build
from tests.export.policies import SIZES

HEADER = """
#define POLICY_OBS 3
static inline void policy(const float *obs, float *action) { action[0] = 2 * obs[0]; action[1] = obs[2]; }
"""
OBS = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def compiler():
    return compiled.find_compiler() or pytest.skip("there is no C compiler")


def test_it_acts_on_each_observation(compiler):
    actions, seconds = compiled.run_compiled(compiler, HEADER, SIZES, OBS, 2)
    np.testing.assert_array_equal(actions, OBS[:, [0, 2]] * [2, 1])
    assert seconds >= 0


def test_which_compiler(monkeypatch, tmp_path):
    """Of C here, of C++ for native code: the same words are understood."""
    for name in ("gcc", "ccache", "my cc"):
        (tmp_path / name).touch(mode=0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    for said, means in (
        ("gcc", ["gcc"]),
        ("gcc -O1", ["gcc", "-O1"]),
        ("ccache 'my cc' -m32", ["ccache", "my cc", "-m32"]),
        ("my cc", ["my cc"]),
        ("'my cc' -m32", ["my cc", "-m32"]),
    ):
        monkeypatch.setenv("CC", said)
        monkeypatch.setenv("CXX", said)
        found = [str(tmp_path / means[0]), *means[1:]]
        assert compiled.find_compiler() == build.find_compiler() == found
    for said, problem in (("nowhere/cc -O1", "names 'nowhere/cc', which is not there"), ("'g", "is not a command")):
        monkeypatch.setenv("CC", said)
        monkeypatch.setenv("CXX", said)
        with pytest.raises(RunFailure, match=f"CC .*{problem}.*; CC= writes the file"):
            compiled.find_compiler()
        with pytest.raises(build.CannotBuild, match=f"CXX .*{problem}"):
            build.find_compiler()
    for said in ("", " "):
        monkeypatch.setenv("CC", said)
        monkeypatch.setenv("CXX", said)
        assert compiled.find_compiler() is None
        with pytest.raises(build.CompilerDisabled):
            build.find_compiler()
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "")
    assert compiled.find_compiler() is None


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("int no c at all", "error"),
        (HEADER.replace("2 *", "*(volatile int *)0 *"), "trial failed: exit code -11"),
    ],
)
def test_what_fails_is_one_line_and_a_way_out(compiler, header, says):
    with pytest.raises(RunFailure, match=says) as failure:
        compiled.run_compiled(compiler, header, SIZES, OBS, 1)
    assert "\n" not in str(failure.value)
    assert str(failure.value).endswith("; CC= writes the file without a trial")


def test_one_that_is_not_there_and_one_that_never_ends(monkeypatch):
    with pytest.raises(RunFailure, match="nowhere/cc cannot be started"):
        compiled.run_compiled(["nowhere/cc"], HEADER, SIZES, OBS, 1)
    monkeypatch.setattr(compiled, "_SECONDS", 0.2)
    with pytest.raises(RunFailure, match="sh did not finish within"):
        compiled.run_compiled(["sh", "-c", "sleep 100 & wait"], HEADER, SIZES, OBS, 1)


def test_without_a_compiler_it_is_written_and_said(finished, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CC", "")
    assert main(["export", str(finished / "me-sac"), "--c", "policy.h"]) == 0
    assert "policy.h: not compared with the run: there is no C compiler here" in capsys.readouterr().out
    assert main(["export", str(finished / "me-sac"), "--c", "policy.h", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["c"]
    assert found == {"files": ["policy.h"], "difference": None, "undecided": 0, "seconds": None}
    assert "void policy(const float *obs, float *action)" in (tmp_path / "policy.h").read_text()
