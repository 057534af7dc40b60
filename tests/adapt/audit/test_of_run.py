from pathlib import Path

import numpy as np
import pytest

from scda.adapt.audit.findings import Kind, read_findings, write_findings
from scda.adapt.audit.images import Audited
from scda.adapt.audit.of_run import audit_images
from scda.models.errors import GateError
from tests.adapt.audit.test_copies import picture


def test_a_run_finds_wrong_labels_copies_and_poor_classes_by_its_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    classes = ["a"] * 12 + ["b"] * 12 + ["few"] * 3
    centre = dict(zip(("a", "b", "few", "new"), np.eye(4, 32) * 4, strict=True))
    of = [*classes, *["new"] * 5]
    features = np.stack([centre[name] + rng.normal(0, 0.3, 32) for name in of]).astype(np.float32)
    features[3] = centre["b"] + rng.normal(0, 0.3, 32)  # labelled a, looks like b
    paths = [tmp_path / f"{number}.png" for number in range(len(of))]
    for number, path in enumerate(paths):
        picture(number).save(path)
    picture(20).resize((60, 60)).save(paths[21])  # a copy at half the size
    features[21] = features[20] + 0.01
    picture(0).save(paths[30])  # a target image of the source
    features[30] = features[0]
    digests = [str(number) for number in range(len(of))]
    digests[29] = digests[28]  # equal files in the target
    images = Audited([path.name for path in paths], classes, features, digests)

    found = audit_images(images, paths)
    assert [(one.kind, one.path, one.other) for one in found if one.kind != Kind.LABEL] == [
        (Kind.LEAK, "30.png", "0.png"),
        (Kind.COPY, "21.png", "20.png"),
        (Kind.COPY, "29.png", "28.png"),
        (Kind.FEW, "few", ""),
    ]
    assert (found[0].kind, found[0].path, found[0].suggested) == (Kind.LABEL, "3.png", "b")
    table = tmp_path / "audit.csv"
    write_findings(table, found)
    read = read_findings(table)
    assert read
    assert [vars(one) | {"score": 0} for one in read] == [vars(one) | {"score": 0} for one in found]

    # As a spreadsheet saves it.
    edited = b"\xef\xbb\xbf" + table.read_bytes().replace(b"true", b"TRUE")
    table.write_bytes(edited)
    again = read_findings(table)
    assert again
    assert [one.remove for one in again] == [one.remove for one in found]
    assert any(one.remove for one in again)

    of_many = audit_images(images, paths, most=len(of) - 1)
    assert [(one.kind, one.path) for one in of_many] == [(Kind.COPY, "29.png"), (Kind.FEW, "few")]


@pytest.mark.parametrize("content", ["finding,path\ncopy,a", "finding,domain\nnever,source\n"])
def test_a_damaged_table_is_told(tmp_path: Path, content: str) -> None:
    assert read_findings(tmp_path / "audit.csv") is None
    (tmp_path / "audit.csv").write_text(content)
    with pytest.raises(GateError, match="damaged"):
        read_findings(tmp_path / "audit.csv")
