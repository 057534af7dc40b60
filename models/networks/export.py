"""Export of a PyTorch model to one ONNX file, checked on real images."""

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.compose
import torch
from torch import Tensor, nn

from scda.models.errors import GateError
from scda.models.networks.backbones import Backbone
from scda.models.networks.network import FeatureClassifier, pixel_backbone
from scda.models.parity import LARGEST_TOLERANCE, TOLERANCE, Reference, check_parity, drift
from scda.models.preprocess import Pixels
from scda.models.session import Session

OPSET = 20
MODEL_OUTPUTS = ("probabilities", "features")
_INPUT, _BETWEEN = "pixels", "backbone"  # names of the inputs of backbone and head
_ROOM = 4  # times the rounding of the machine that exports; another one may round otherwise
_TOP = "top/"  # before the names of what lies behind the backbone


def export_backbone(backbone: Backbone, path: Path) -> None:
    """Write a backbone that reads (N, H, W, 3) uint8 pixels as one ONNX file with a free N.

    Args:
        backbone: Backbone, on the CPU.
        path: File to write.
    """
    # Two images: the exporter would fix a batch of one.
    pixels = torch.zeros((2, *backbone.preprocessing.shape), dtype=torch.uint8)
    model = _exported(pixel_backbone(backbone), pixels, _INPUT, [_BETWEEN])
    onnx.save_model(model, str(path))


def export_model(
    backbone: Path,
    top: FeatureClassifier,
    path: Path,
    *,
    width: int,
    metadata: dict[str, str] | None = None,
) -> None:
    """Write a model as one ONNX file: what `export_backbone` wrote, and head and C behind it.

    Args:
        backbone: File of the backbone.
        top: Head and C, on the CPU.
        path: File to write.
        width: Width of the backbone's features, D_backbone.
        metadata: Written to the file as `metadata_props`.
    """
    names = [_TOP + name for name in MODEL_OUTPUTS]
    behind = _exported(top, torch.zeros(2, width), _BETWEEN, MODEL_OUTPUTS)
    behind = onnx.compose.add_prefix(behind, _TOP)
    model = onnx.compose.merge_models(
        onnx.load_model(str(backbone)), behind, io_map=[(_BETWEEN, _TOP + _BETWEEN)]
    )
    operators = {entry.domain: entry for entry in model.opset_import}  # each of both parts
    del model.opset_import[:]
    model.opset_import.extend(operators.values())
    _rename(model.graph, dict(zip(names, MODEL_OUTPUTS, strict=True)))
    onnx.helper.set_model_props(model, metadata or {})
    onnx.checker.check_model(model)
    onnx.save_model(model, str(path))


def _exported(
    module: nn.Module, example: Tensor, takes: str, outputs: Sequence[str]
) -> onnx.ModelProto:
    """Return a module as an ONNX model with a free batch; the module is put into evaluation."""
    module.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about its own code
        program = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            opset_version=OPSET,
            input_names=[takes],
            output_names=list(outputs),
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            external_data=False,
            verbose=False,
        )
    if program is None:
        raise GateError("the ONNX exporter returned no model")
    return _anonymous(program.model_proto)


def _rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in graph.output:
        value.name = names.get(value.name, value.name)


def check_export(module: nn.Module, model: Path, pixels: Pixels) -> Reference:
    """Return the outputs of torch for real images, after comparing the ONNX file with them.

    Args:
        module: `PixelClassifier` on the CPU, in float32.
        model: File that `export_model` wrote of it.
        pixels: (N, H, W, 3) uint8, decoded images; compared at batch 1, 2 and N.

    Raises:
        GateError: If a probability differs by more than the tolerance.
    """
    module.eval()
    images = torch.from_numpy(np.ascontiguousarray(pixels))
    with torch.inference_mode():
        probabilities, features = module(images)
    reference = Reference(pixels, probabilities.numpy(), features.numpy())
    session = Session(model, provider="cpu")
    found = drift(session, reference)
    if _ROOM * found > reference.tolerance:
        reference = replace(reference, tolerance=_tolerance(module, images, probabilities, found))
    check_parity(session, reference)
    return reference


def _tolerance(module: nn.Module, images: Tensor, probabilities: Tensor, found: float) -> float:
    """Return the tolerance of a model that rounds more than others do.

    The batch statistics of a domain of drawings make small differences large, in torch as well:
    what float64 gives shows whether a difference is one of rounding.

    Args:
        module: `PixelClassifier` on the CPU, in float32.
        images: (N, H, W, 3) uint8.
        probabilities: What the module returns for them, (N, C).
        found: Largest difference between these and those of the ONNX file.
    """
    usual = TOLERANCE["cpu"]
    if found > usual:
        with torch.inference_mode():
            exact, _ = copy.deepcopy(module).double()(images)
        if found > _ROOM * float((exact - probabilities).abs().max()):
            return usual
    # A power of two, so that the bundle depends on the last digits of no sum.
    return min(LARGEST_TOLERANCE, 2.0 ** math.ceil(math.log2(_ROOM * found)))


def _anonymous(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove what the exporter records about the machine: paths, stack traces, doc strings."""
    model.doc_string = ""
    for function in model.functions:
        function.doc_string = ""
        del function.metadata_props[:]
        _strip(function.node)
    graph = model.graph
    graph.doc_string = ""
    del graph.metadata_props[:]
    _strip(graph.node)
    for values in (graph.input, graph.output, graph.value_info, graph.initializer):
        for value in values:
            value.doc_string = ""
            del value.metadata_props[:]
    return model


def _strip(nodes: Sequence[onnx.NodeProto]) -> None:
    for node in nodes:
        node.doc_string = ""
        del node.metadata_props[:]
