"""Export to ONNX: a node for each operation of a program."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mepg.errors import UsageError
from mepg.export.operations import ACTION, OBS, Operation, PolicyProgram

OPSET, IR_VERSION = 18, 10  # of 2022 and 2024: every runtime of recent years supports them


class _Node(NamedTuple):
    """How an operation is written in ONNX."""

    op_type: str
    inputs: tuple[str, ...] = ()  # attributes of the operation that are inputs of the node
    fixed: dict[str, Any] = {}  # noqa: RUF012


_PLAIN = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max", "minimum": "Min",
    "tanh": "Tanh", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "negative": "Neg", "less": "Less",
    "greater": "Greater", "where": "Where", "matmul": "MatMul", "cast": "Cast", "transpose": "Transpose",
    "concatenate": "Concat", "take_along_axis": "GatherElements",
}  # fmt: skip
_NODES = {name: _Node(op_type) for name, op_type in _PLAIN.items()} | {
    "argmax": _Node("ArgMax", fixed={"keepdims": 0}),
    "max": _Node("ReduceMax", ("axes",), {"keepdims": 0}),
    "min": _Node("ReduceMin", ("axes",), {"keepdims": 0}),
    "sum": _Node("ReduceSum", ("axes",), {"keepdims": 0}),
    "reshape": _Node("Reshape", ("shape",)),
    "expand": _Node("Expand", ("shape",)),
    "slice": _Node("Slice", ("start", "end", "axis")),
}


def require_onnx() -> tuple[Any, Any]:
    """The packages onnx and onnxruntime; a UsageError says how to install them."""
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise UsageError(f"--onnx needs {error.name}, which is not installed: pip install 'mepg[onnx]'") from None
    return onnx, onnxruntime


def to_onnx(program: PolicyProgram, obs_size: int, about: dict[str, str]) -> bytes:
    """A model from `obs` to `action`, for batches of any size, with `about` as its metadata."""
    onnx, _ = require_onnx()
    helper = onnx.helper
    obs_type, action_type = (helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in ("float32", program.dtype))
    tensors = dict(program.constants)
    action_shape = program.operations[-1].attributes["shape"][1:]
    nodes = [_node(helper, operation, tensors) for operation in program.operations]
    graph = helper.make_graph(
        nodes,
        "policy",
        inputs=[helper.make_tensor_value_info(OBS, obs_type, ["batch", obs_size])],
        outputs=[helper.make_tensor_value_info(ACTION, action_type, ["batch", *action_shape])],
        initializer=[onnx.numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    model = helper.make_model(graph, producer_name="mepg", opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = IR_VERSION
    helper.set_model_props(model, about)
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


def _node(helper: Any, operation: Operation, tensors: dict[str, Any]) -> Any:
    node, attributes = _NODES[operation.name], dict(operation.attributes)
    inputs = list(operation.inputs)
    for name in node.inputs:
        inputs.append(f"{operation.output}.{name}")
        tensors[inputs[-1]] = np.atleast_1d(np.array(attributes.pop(name), np.int64))
    if "to" in attributes:
        attributes["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(attributes["to"]))
    return helper.make_node(node.op_type, inputs, [operation.output], **attributes, **node.fixed)


def open_session(content: bytes) -> Any:
    """An onnxruntime session on one thread: for one observation, more threads would only wait for each other."""
    _, onnxruntime = require_onnx()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
