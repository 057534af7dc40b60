"""A bundle of many classes to review: it cannot answer, and a page that shows it needs no model."""

import tempfile
from pathlib import Path

from scda.models.bundle import CLUSTERS, MODEL, PARITY, ClassInfo, write_bundle
from scda.models.preprocess import Preprocessing
from tests.bundles import RGB, picture


def make_many(folder: Path, *, known: int = 20, discovered: int = 300) -> Path:
    """Write the bundle to `folder`, and return it; every class has four exemplars."""
    ids = [f"known-{i:03d}" for i in range(known)]
    ids += [f"discovered-{i:03d}" for i in range(discovered)]
    pictures = [picture(colour, size=(64, 64)) for colour in RGB]
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        draft = Path(name)
        for required in (MODEL, CLUSTERS, PARITY):
            (draft / required).write_bytes(b"not read by the page")
        for row, class_id in enumerate(ids):
            (draft / "exemplars" / class_id).mkdir(parents=True)
            for number in range(4):
                place = draft / "exemplars" / class_id / f"{number}.jpg"
                place.write_bytes(pictures[row % len(pictures)])
        write_bundle(
            draft,
            folder,
            classes=tuple(map(_info, ids)),
            preprocessing=Preprocessing(resize_px=8, crop_px=8, mean=(0, 0, 0), std=(1, 1, 1)),
            thresholds={},
            status=("ok",),
            run={},
        )
    return folder


def _info(class_id: str) -> ClassInfo:
    kind, _, number = class_id.partition("-")
    return ClassInfo(
        class_id=class_id,
        label=f"tool {number}" if kind == "known" else class_id,
        kind=kind,
        size=999 - int(number),
        mean_confidence=0.9,
        radius={"q99": 0.2},
        nearest_known="known-001" if kind == "discovered" else None,
        exemplars=tuple(f"exemplars/{class_id}/{n}.jpg" for n in range(4)),
    )
