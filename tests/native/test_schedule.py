"""Layouts: panels, packed operands."""

import pytest

from mepg.native.graph import AxisIndex, Graph
from mepg.native.schedule import Operand, panel_width


def node(*shape, op="input", **params):
    return Graph().new(op, (), shape, "f32", **params)


@pytest.mark.parametrize(("shape", "width"), [((5, 40), 32), ((5, 17), 32), ((5, 16), 16), ((40, 1), 32), ((), 16)])
def test_matrices_are_in_panels(shape, width):
    assert panel_width(node(*shape)) == width


def test_inputs_and_the_results_of_calls_are_row_major():
    assert panel_width(node(5, 40, row_major=True)) == 40
    assert panel_width(node(5, 3, op="relayout")) == 3


K, R, C = AxisIndex("k"), AxisIndex("r"), AxisIndex("c")
OPERANDS = {  # the row's and column's variable, bfloat16, left: transposed, packing, words of a matrix of 20 by 40
    "left": (R, K, False, True, False, "", None),
    "left transposed": (K, R, False, True, True, "", None),
    "right": (K, C, False, False, False, "", None),
    "right transposed": (C, K, False, False, True, "panels_transposed", 32 * 40),
    "left in pairs": (R, K, True, True, False, "pairs_in_rows", 2 * 16 * 20),
    "left transposed in pairs": (K, R, True, True, True, "pairs", 64 * 10),
    "right in pairs": (K, C, True, False, False, "pairs", 64 * 10),
    "right transposed in pairs": (C, K, True, False, True, "pairs_transposed", 32 * 20),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_packing(name):
    row, column, bfloat16, left, transposed, packing, words = OPERANDS[name]
    operand = Operand(node(20, 40), [], row, column, bfloat16, left, 20, 40)
    assert (operand.transposed, operand.packing) == (transposed, packing)
    if words is not None:
        assert operand.packed_words == words


def test_the_loops_that_choose_a_matrix():
    indirect = AxisIndex(indirect=(node(5), (AxisIndex("l1"),)), size=3)
    operand = Operand(node(2, 3, 20, 40), [AxisIndex("t7"), indirect], R, K, False, True, 20, 40)
    assert operand.batch_variables == ["l1"]
