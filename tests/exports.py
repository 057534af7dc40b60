"""Exports to ONNX that are kept as long as the tests run: the exporter takes seconds for each."""

import hashlib
import io
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
import torch
from torch import nn

Export = Callable[..., Any]

in_earnest: Export = torch.onnx.export


def remembered(export: Export, folder: Path) -> Export:
    """An exporter that answers a module of equal weights and structure with the earlier file.

    The files are kept in a folder, which other processes may use at the same time.

    That nothing is hidden thereby needs equal modules to give equal files, which
    `test_the_same_seed_gives_the_same_bundle` shows with the exporter itself.
    """

    def call(module: nn.Module, args: tuple[Any, ...], **options: Any) -> SimpleNamespace:
        state = io.BytesIO()
        torch.save((module, args), state)
        key = hashlib.sha256(state.getvalue() + repr(sorted(options.items())).encode()).hexdigest()
        if not (known := folder / key).exists():
            draft = folder / f"{key}.{os.getpid()}"
            draft.write_bytes(export(module, args, **options).model_proto.SerializeToString())
            draft.replace(known)
        return SimpleNamespace(model_proto=onnx.ModelProto.FromString(known.read_bytes()))

    return call


def read_operators_once(patch: pytest.MonkeyPatch) -> None:
    """Let the exporter keep its table of operators, a quarter of the time of a small export."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError:  # another version of torch, which then reads it anew each time
        return
    kept = staticmethod(cache(ONNXRegistry.from_torchlib))
    patch.setattr(ONNXRegistry, "from_torchlib", kept)
