from pathlib import Path

import pytest

from protocols import DOMAINS, PROTOCOLS

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
