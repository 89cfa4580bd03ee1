"""The instructions that a program may use."""

from __future__ import annotations

from dataclasses import dataclass

from mepg.system import processor_extensions


@dataclass(frozen=True)
class Instructions:
    """A set of instructions, as the generator and the compiler know it."""

    name: str
    lanes: int  # numbers in a vector
    registers: int  # vectors that are at hand
    bfloat16: bool = False  # whether there is a product of bfloat16 numbers
    flags: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()  # the processor's names for them


_AVX2 = ("-mavx2", "-mfma")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")
_NEEDS_AVX512 = frozenset({"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"})
KNOWN = {
    each.name: each
    for each in (
        Instructions("avx512-bf16", 16, 32, True, (*_AVX512, "-mavx512bf16"), _NEEDS_AVX512 | {"avx512_bf16"}),
        Instructions("avx512", 16, 32, False, _AVX512, _NEEDS_AVX512),
        Instructions("avx2", 8, 16, False, _AVX2, frozenset({"avx2", "fma"})),
        Instructions("neon", 4, 32, needs=frozenset({"asimd"})),
        Instructions("plain", 4, 16),
    )
}


def best_instructions() -> Instructions:
    """The most that this processor has."""
    here = set(processor_extensions().split())
    return next(each for each in KNOWN.values() if each.needs <= here)
