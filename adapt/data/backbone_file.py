"""A backbone as an ONNX file, which the cache keeps: to export it takes longer than to train."""

import glob
import hashlib
import tempfile
from importlib.metadata import version
from pathlib import Path

from scda.models.files import write_atomically, write_errors
from scda.models.networks.backbones import Backbone
from scda.models.networks.export import OPSET, export_backbone

_DIGITS = 16  # of the file's SHA-256, in its name


def backbone_file(backbone: Backbone, folder: Path) -> Path:
    """Return the ONNX file of a backbone in a folder, exported if it is not there or damaged.

    Args:
        backbone: Backbone, on the CPU.
        folder: Folder that keeps it; it is there.

    Raises:
        UsageError: If the file cannot be written.
    """
    # What the same weights become depends on who builds the network, and on who exports it.
    versions = "-".join([*map(version, ("scda", "timm", "torch", "onnx")), str(OPSET)])
    key = f"{backbone.id}-{backbone.preprocessing.id}-{versions}"
    for path in folder.glob(f"{glob.escape(key)}-*.onnx"):
        if path.name == _name(key, path.read_bytes()):
            return path
        path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as draft:
        made = Path(draft) / "backbone.onnx"
        export_backbone(backbone, made)
        data = made.read_bytes()
    path = folder / _name(key, data)
    with write_errors(path):
        write_atomically(path, data)
    return path


def _name(key: str, data: bytes) -> str:
    return f"{key}-{hashlib.sha256(data).hexdigest()[:_DIGITS]}.onnx"
