"""Export of a PyTorch model to one ONNX file, checked on real images."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn

from scda.models.errors import GateError
from scda.models.parity import Reference, check_parity
from scda.models.preprocess import Pixels
from scda.models.session import Session

OPSET = 20
MODEL_OUTPUTS = ("probabilities", "features")


def export_onnx(
    module: nn.Module,
    path: Path,
    *,
    shape: tuple[int, int, int],
    outputs: Sequence[str],
    metadata: dict[str, str] | None = None,
) -> None:
    """Write a module that reads (N, H, W, 3) uint8 pixels as one ONNX file with a free N.

    Args:
        module: Module to export; it is put into evaluation mode.
        path: File to write.
        shape: Shape (H, W, 3) of the images.
        outputs: Names of the outputs.
        metadata: Written to the file as `metadata_props`.
    """
    module.eval()
    # Two images: the exporter would fix a batch of one.
    example = torch.zeros((2, *shape), dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about its own code
        program = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            opset_version=OPSET,
            input_names=["pixels"],
            output_names=list(outputs),
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            external_data=False,
            verbose=False,
        )
    if program is None:
        raise GateError("the ONNX exporter returned no model")
    model = _anonymous(program.model_proto)
    onnx.helper.set_model_props(model, metadata or {})
    onnx.checker.check_model(model)
    onnx.save_model(model, str(path))


def check_export(module: nn.Module, model: Path, pixels: Pixels) -> Reference:
    """Return the outputs of torch for real images, after comparing the ONNX file with them.

    Args:
        module: `PixelClassifier` on the CPU, in float32.
        model: File that `export_onnx` wrote from it.
        pixels: (N, H, W, 3) uint8, decoded images; compared at batch 1, 2 and N.

    Raises:
        GateError: If a probability differs by more than the tolerance.
    """
    module.eval()
    with torch.inference_mode():
        probabilities, features = module(torch.from_numpy(np.ascontiguousarray(pixels)))
    reference = Reference(pixels, probabilities.numpy(), features.numpy())
    check_parity(Session(model, provider="cpu"), reference)
    return reference


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
