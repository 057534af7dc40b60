"""Static quantisation of a model's file: convolutions in int8, calibrated on real images.

Activations are unsigned and weights signed, each output channel with its own scale, and every
conversion is a node of its own (QDQ), so that any runtime finds them. Batch normalisation is part
of the convolutions already. The head and the classifier stay in float32: they are a hundredth of
the work, and decide.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from scda.models.errors import UsageError
from scda.models.onnx_runtime import ort, quantization
from scda.models.preprocess import Pixels

_TEMPERATURES = ".inverse"  # how the name of the inverse temperatures ends
_OPERATORS = ["Conv", "Add", "Clip", "Relu", "MaxPool"]


def quantise(model: onnx.ModelProto, out: Path, batches: Iterable[Pixels]) -> None:
    """Write a model with its backbone in int8.

    Args:
        model: Model of pixels (N, H, W, 3), as `export_model` wrote it.
        out: File to write.
        batches: Images of its target, on which the range of every activation is measured.

    Raises:
        UsageError: If it has no convolution.
    """
    reshape_pooled(model.graph)
    nodes = list(model.graph.node)
    convolutions = [row for row, node in enumerate(nodes) if node.op_type == "Conv"]
    if not convolutions:
        raise UsageError("the model has no convolutions to write in int8; keep it in float32")
    behind = nodes[convolutions[-1] + 2 :]  # the last convolution and its activation
    tools = quantization()
    with _warnings_only(), _one_thread(tools.CalibraterBase):
        tools.quantize_static(
            model,
            str(out),
            _Reader(model.graph.input[0].name, iter(batches)),
            quant_format=tools.QuantFormat.QDQ,
            op_types_to_quantize=_OPERATORS,
            nodes_to_exclude=[node.name for node in behind],
            per_channel=True,
            activation_type=tools.QuantType.QUInt8,
            weight_type=tools.QuantType.QInt8,
            calibrate_method=tools.CalibrationMethod.MinMax,
            # The mean of the batches' ranges: one image far off does not coarsen all others.
            extra_options={"CalibMovingAverage": True},
        )


def reshape_pooled(graph: onnx.GraphProto) -> None:
    """Let pooled activations, (N, D, 1, 1), be reshaped to (N, D) without a copy in between.

    The exporter writes that copy, which changes nothing, as a `Gather` at positions computed from
    N. With it, OpenVINO 2026.4 gives the first convolution in int8 a wrong bias.
    """
    producer = {value: node for node in graph.node for value in node.output}
    for node in graph.node:
        copied = producer.get(node.input[0]) if node.op_type == "Reshape" else None
        if copied is None or copied.op_type != "Gather" or "as_strided" not in copied.output[0]:
            continue
        pooled = producer[copied.input[0]].input[0]  # before it was made flat
        if producer[pooled].op_type == "ReduceMean":
            node.input[0] = pooled
    _remove_unused(graph)


def _remove_unused(graph: onnx.GraphProto) -> None:
    """Remove nodes and constants whose values nobody reads."""
    needed, used = {value.name for value in graph.output}, []
    for node in reversed(graph.node):  # a value is written before it is read
        if needed.intersection(node.output):
            used.append(node)
            needed.update(node.input)
    constants = [tensor for tensor in graph.initializer if tensor.name in needed]
    for values, kept in ((graph.node, used[::-1]), (graph.initializer, constants)):
        del values[:]
        values.extend(kept)


def set_temperatures(model: onnx.ModelProto, temperatures: Iterable[float]) -> bool:
    """Set the temperatures of the classes in a model; return whether it has any."""
    values = 1 / np.fromiter(temperatures, np.float32)
    for tensor in model.graph.initializer:
        if tensor.name.endswith(_TEMPERATURES) and tuple(tensor.dims) == values.shape:
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
            return True
    return False


class _Reader:
    """The batches in the form of ONNX Runtime's `CalibrationDataReader`."""

    def __init__(self, name: str, batches: Iterator[Pixels]) -> None:
        self._name, self._batches = name, batches

    def get_next(self) -> dict[str, Pixels] | None:
        batch = next(self._batches, None)
        return None if batch is None else {self._name: batch}


@contextmanager
def _warnings_only() -> Iterator[None]:
    """Silence the advice to prepare the model, which the exporter to ONNX has done."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(before)


@contextmanager
def _one_thread(calibrater: Any) -> Iterator[None]:
    """Let ONNX Runtime's class of calibrations run the model on one thread within the block.

    It has no option for it, and would use all cores of the machine, not those of the container.
    """

    def create(self: Any) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        # Every value that is measured must be there.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.infer_session = ort.InferenceSession(
            self.augmented_model_path, options, providers=self.execution_providers
        )

    before = calibrater.create_inference_session
    calibrater.create_inference_session = create
    try:
        yield
    finally:
        calibrater.create_inference_session = before
