from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.open_set import execute
from benchmarks.open_set.protocols import DOMAINS, PROTOCOLS
from scda.adapt.data.features import Extracted

_OTHERS = ("letter_tray", "mobile_phone", "paper_notebook")
_COUNTS = {"amazon": 4, "dslr": 2, "webcam": 3}  # images per class


@pytest.fixture(scope="session")
def office31(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of Office-31 with all 31 classes and files that hold no image."""
    root = tmp_path_factory.mktemp("office31")
    named = {n for classes in PROTOCOLS.values() for n in classes.known + classes.implicit}
    for domain in DOMAINS.values():
        for name in sorted({*named, *_OTHERS}):
            folder = root / domain / "images" / name
            folder.mkdir(parents=True)
            for number in range(_COUNTS[domain]):
                (folder / f"frame_{number:04}.jpg").write_bytes(b"no image")
    return root


@pytest.fixture
def no_backbone(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make up features by class; return the number of images of every call."""
    calls: list[int] = []

    def extract(paths: Sequence[Path], *unused: object, **options: Any) -> Extracted:
        calls.append(len(paths))
        names = sorted({path.parent.name for path in paths})
        rows = [np.eye(512, dtype=np.float32)[names.index(path.parent.name)] for path in paths]
        return Extracted(list(paths), np.stack(rows), [path.name for path in paths], [])

    monkeypatch.setattr(execute, "extract", extract)
    monkeypatch.setattr(execute, "job_backbone", lambda config: SimpleNamespace(classifier=None))
    monkeypatch.setattr(execute, "adapts_statistics", lambda config: False)
    monkeypatch.setattr(execute, "one_thread", lambda: None)
    return calls
