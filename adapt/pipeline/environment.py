"""The environment of a run: paths, versions, host, device and time."""

import importlib.metadata
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from scda.adapt.data.job import Job
from scda.adapt.runtime.device import select_device
from scda.models.files import real_path

_LIBRARIES = ("scda", "torch", "onnxruntime-gpu", "onnxruntime", "faiss-cpu", "timm", "numpy")


def environment(job: Job) -> dict[str, Any]:
    """Return paths, versions, host, device and time of a run, for config.json and bundle.json."""
    return {
        "source": str(real_path(job.source)),
        "target": str(real_path(job.target)),
        "limits": dict(vars(job.limits)),
        "versions": dict(_installed()),
        "host": platform.node(),
        "python": platform.python_version(),
        "device": select_device(job.config).type,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _installed() -> Iterator[tuple[str, str]]:
    for library in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            yield library, importlib.metadata.version(library)
