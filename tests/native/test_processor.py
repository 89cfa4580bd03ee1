"""The instructions that a processor has."""

import pytest

from mepg.native import processor
from mepg.native.processor import KNOWN


@pytest.mark.parametrize(
    ("extensions", "name"),
    [
        ("", "plain"),
        ("sse2 avx avx2", "plain"),  # without fma
        ("sse2 avx2 fma", "avx2"),
        ("avx2 fma avx512f", "avx2"),
        ("avx2 fma avx512f avx512bw avx512dq avx512vl", "avx512"),
        ("avx2 fma avx512f avx512bw avx512dq avx512vl avx512_bf16", "avx512-bf16"),
    ],
)
def test_the_best_that_the_processor_has(extensions, name, monkeypatch):
    monkeypatch.setattr(processor, "processor_extensions", lambda: extensions)
    assert processor.best_instructions() is KNOWN[name]


def test_each_set_has_flags_for_what_it_needs():
    for instructions in KNOWN.values():
        assert instructions.lanes in (4, 8, 16)
        for flag in instructions.flags:
            assert flag.removeprefix("-m") in {need.replace("_", "") for need in instructions.needs}
