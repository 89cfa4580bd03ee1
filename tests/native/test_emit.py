"""The text of a program: its functions, their order, barriers, tiles, reductions."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mepg.native.library import generate
from mepg.native.processor import KNOWN

A, B = (np.zeros(shape, np.float32) for shape in ((20, 40), (40, 40)))


def program(function, *examples, state="none", instructions="avx512", threads=1):
    return generate(function, examples, state, KNOWN[instructions], threads).text


def functions(text):
    """The comment and the body of each function."""
    return re.findall(r"// (.*?)\nNOINLINE void f\d+\([^)]*\) {\n(.*?)\n}", text, re.S)


def main(text):
    """The lines of `run`."""
    return [line.strip() for line in text[text.index("int run(") :].splitlines()[2:-1]]


def test_a_function_for_each_step_and_one_that_calls_them():
    text = program(lambda x, w: jnp.maximum(x @ w, 0).sum(), A, B)
    assert [comment for comment, _ in functions(text)] == [
        "loops 40 x 40; roots: copy", "product 20 x 40, depth 40; roots: reduce",
    ]  # fmt: skip
    assert [re.sub(r"\(.*", "", line) for line in main(text)] == [
        "copy_input", "copy_input", "f0", "f1", "copy_output<16>", "return 0;",
    ]  # fmt: skip


def test_the_state_is_neither_copied_in_nor_out():
    text = program(lambda s, x: ([s[0] + x], x.sum()), [B], np.float32(1), state="written")
    assert [re.sub(r"\(.*", "", line) for line in main(text)] == [
        "copy_input",
        "f0",
        "f1",
        "copy_output<16>",
        "return 0;",
    ]
    assert "store(S + 0" in text


@pytest.mark.parametrize(("instructions", "rows", "vectors"), [("avx512", 8, 2), ("avx2", 6, 2), ("plain", 4, 2)])
def test_a_tile_fits_in_the_registers(instructions, rows, vectors):
    text = program(lambda x, w: x @ w, A, np.zeros((40, 64), np.float32), instructions=instructions)
    assert f"vf tile[MR][{vectors}];" in text
    assert f"i + {rows} <= 20; i += {rows})" in text
    rest = f"if (i < 20) compute_rows.template operator()<{20 % rows}>"
    assert (rest in text) == bool(20 % rows)


def test_a_product_walks_along_panels():
    text = program(lambda s, x: x @ s[0], [B], np.zeros((20, 40), np.float32), state="read")
    assert "product<Single, 40, 1, 32>(A + (i + 0) * 40 + 0, B, 40, tile);" in text  # row-major on the left
    assert "panel<32, 40>(0, c0)" in text
    text = program(lambda s: s[1] @ s[0], [B, A], state="read")
    assert "for (int k = 0; k < 40; k += 32)" in text
    assert (
        "product<Single, 32, 1, 32>(A + k * 20 + (i + 0) * 32, B + k * 32, (40 - k < 32 ? 40 - k : 32), tile);" in text
    )


def test_a_transposed_left_side_is_read_as_it_lies_and_a_right_one_packed():
    text = program(lambda s: s[0].T @ s[1], [B, B], state="read")
    assert "product<Single, 1, 32, 32>(A + panel<32, 40>(0, i + 0), B, 40, tile);" in text
    assert "pack" not in text
    text = program(lambda s: s[0] @ s[1].T, [B, B], state="read")
    assert re.search(r"pack_panels_transposed<32, 40, 32>\(S \+ \d+ \+ .*, 0, 40, 40, T \+ \d+\);", text)


@pytest.mark.parametrize(
    ("columns", "split"), [(32, False), (33, True), (40, True), (48, True), (49, False), (64, False)]
)
def test_the_last_columns_of_a_product_take_one_vector_if_that_is_enough(columns, split):
    text = program(lambda x, w: x @ w, A, np.zeros((40, columns), np.float32))
    whole = columns // 32 * 32
    assert (f"const int c0 = {whole};" in text) == ("<8, 1>(i, c0);" in text) == split
    loop = f"for (int c0 = 0; c0 < {whole if split else columns}; c0 += 32) {{"
    assert loop in text
    assert ("<8, 2>(i, c0);" in text) == split


def test_threads_share_the_columns_before_the_last_and_one_has_these():
    x, w = np.zeros((20, 700), np.float32), np.zeros((700, 100), np.float32)
    text = program(lambda x, w: (x @ w).sum(0), x, w, threads=2)
    assert "for (int c0 = first; c0 < min_(last, 96); c0 += 32) {" in text
    assert "if (last > 96) {" in text


def test_stores_come_last():
    """A store may overwrite what another value of the same loops reads."""
    ((_, body),) = functions(program(lambda s: [s[1] + 1, s[0] * 2], [B, B], state="read"))
    inner = [line.strip() for line in body.splitlines()]
    stores = [k for k, line in enumerate(inner) if line.startswith("store(")]
    values = [k for k, line in enumerate(inner) if re.match(r"const vf v\d", line)]
    assert max(values) < min(stores)


def test_reductions():
    text = program(lambda x: (x.sum(1), x.max(0)), A)
    assert re.search(r"across_rows\(T \+ \d+, 0, 20, 20, \[\]\(vf a, vf b\) { return sum_\(a, b\); }", text)
    assert "select(valid, vf{}, " in text  # 40 columns do not fill two tiles of 32
    assert "max_(load_f(" in text
    assert "all(-INFINITY)" in text
    text = program(lambda x: x.sum(1), np.zeros((20, 64), np.float32))
    assert "valid" not in text
    assert "sum_across(load_i(" in program(lambda x: x.sum(1), np.zeros((20, 70), np.int32))


@pytest.mark.parametrize(("columns", "whole"), [(32, True), (48, True), (20, False)])
def test_pieces_of_a_concatenation_are_stored_by_vectors(columns, whole):
    """The last vector of a piece may reach into the next one."""
    pieces = [np.zeros((9, columns), np.float32), np.zeros((9, 5), np.float32)]
    (_, body), *_ = functions(program(lambda x, y: jnp.concatenate([x + 1, y], 1), *pieces))
    assert ("store_lane" not in body) == whole
    assert whole or f"if (c + L <= {columns}) store(" in body


def test_vectors_beyond_the_last_column_are_skipped():
    assert "if (c >= 40) continue;" in program(lambda x: x + 1, A)
    assert "continue" not in program(lambda x: x + 1, np.zeros((20, 64), np.float32))


def test_leading_axes_are_loops_around():
    text = program(lambda x: jnp.exp(x), np.zeros((3, 4, 20, 40), np.float32))
    assert "for (int l0 = 0; l0 < 3; l0++) {\n  for (int l1 = 0; l1 < 4; l1++) {" in text


def test_branches_note_that_they_were_taken():
    text = program(lambda i, x: lax.switch(i, [lambda: x, lambda: x + 1, lambda: x * 2]), np.int32(0), A)
    assert "branches = 3, taken[3] = {};" in text
    lines = [line for line in main(text) if not line.startswith(("f", "copy", "if"))]
    assert re.fullmatch(r"switch \(clip\(scalar_i\(T \+ \d+\), 3\)\) {", lines[0])
    assert lines[1:] == [
        "case 0: {", "taken[0] = 1;", "break; }", "case 1: {", "taken[1] = 1;", "break; }",
        "default: {", "taken[2] = 1;", "break; }", "}", "return 0;",
    ]  # fmt: skip


def test_loops_hand_their_counter_to_functions():
    text = program(lambda x: lax.scan(lambda c, row: (c + row, c.sum()), x[0], x, reverse=True), A)
    (counter,) = re.findall(r"for \(int (t\d+) = 19; t\d+ >= 0; t\d+--\) {", text)
    assert f"const int t, const int {counter})" in text
    assert f"(S, T, 0, {counter});" in text
    text = program(lambda x: lax.while_loop(lambda x: x.sum() < 9, lambda x: x + 1, x), A)
    assert re.search(r"for \(int (t\d+) = 0; scalar_b\(T \+ \d+\); \1\+\+\) {", text)


def synchronized(lines):
    """Whether a barrier lies between any two steps of which one writes in several threads."""
    pending = set()
    for line in lines:
        if line == "barrier.wait();":
            pending = set()
        elif re.match(r"(if \(t == 0\) )?f\d+\(", line):
            kind = "first" if line.startswith("if") else "all"
            if pending and (kind == "all" or "all" in pending):
                return False
            pending.add(kind)
    return True


def test_threads_wait_for_each_other():
    def function(x, w, key):
        y = jnp.tanh(x @ w)
        return y.sum(), (y @ w).max(0), jax.random.bits(key, (300, 20)), x[0].sum()

    given = np.zeros((200, 100), np.float32), np.zeros((100, 100), np.float32), jax.random.key(0)
    lines = main(program(function, *given, threads=2))
    assert "barrier.wait();" in lines
    assert any(line.startswith("if (t == 0) f") for line in lines)
    assert any(line.startswith("f") for line in lines)
    assert synchronized(lines)
    assert not synchronized([line for line in lines if "barrier.wait" not in line])
    assert "barrier" not in program(function, *given)


def test_all_threads_read_which_branch_it_is_before_one_goes_on():
    """Once it has been read, its memory may be another's."""

    def function(x, i):
        return lax.cond(i * 2 > 2, lambda: x * 2, lambda: jnp.tanh(x) @ x)

    text = program(function, B, np.int32(1), threads=2)
    branches = re.split(r"case \d+: \{|default: \{", text[text.index("switch") :])[1:]
    first = [next(line for line in branch.split("\n") if line.strip() and "taken" not in line) for branch in branches]
    assert [line.strip() for line in first] == ["barrier.wait();"] * 2


def test_the_same_text_twice():
    def function(x, w):
        return jnp.tanh(x @ w).sum(0), jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)

    assert program(function, A, B) == program(function, A, B)
