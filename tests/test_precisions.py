"""A model in int8, and with OpenVINO, from the command line to a server's answers."""

import csv
import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from scda.models.bundle import read_manifest
from scda.models.session import OPENVINO, Session
from tests.conftest import Scda, TinyData
from tests.launched import words_of
from tests.serving import Server, serving

# Of a confidence: what the same float32 sums in another order may change, what bfloat16 may, and
# what rounding to int8 may where another runtime's sums end on the other side of a half.
WITHIN = {"fp32": 1e-3, "bf16": 0.05, "int8": 0.05}
SAME_SUMS = 1e-4  # of a confidence, between batches of one runtime


@dataclass(frozen=True)
class Row:
    label: str
    confidence: float
    margin: float  # first minus second probability
    model_id: str


Rows = Mapping[str, Row]  # name of the file → row


@pytest.fixture(scope="session")
def openvino_precision(tiny_run: Path) -> str:
    """What OpenVINO computes in on this CPU; skip the test where it is not installed."""
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    return Session(tiny_run / "bundle" / "model.onnx", provider=OPENVINO, threads=1).precision


def labelled(scda: Scda, bundle: Path, images: Path, out: Path, *words: str) -> Rows:
    """Return the rows of `scda-adapt label`, whose summary is written beside `out`."""
    summary = out.with_suffix(".json")
    more = ("--out", out, "--summary", summary, "--threads", "1", "--quiet", *words)
    done = scda("label", bundle, images, *more)
    assert done.returncode == 0, done.stderr
    with out.open(newline="") as file:
        return {row["path"]: as_row(row) for row in csv.DictReader(file)}


def answered(server: Server, images: Path) -> Rows:
    """Return the server's answer for every image."""
    rows = {}
    for path in sorted(images.iterdir()):
        answer = server.client.post("/v1/predict", content=path.read_bytes())
        assert answer.status_code == 200, answer.text
        rows[path.name] = as_row(answer.json())
    return rows


def as_row(fields: Mapping[str, str]) -> Row:
    confidence, margin = (float(fields[name]) for name in ("confidence", "margin"))
    return Row(fields["label"], confidence, margin, fields["model_id"])


def check_alike(found: Rows, expected: Rows, within: float) -> None:
    """Check that labels are equal and confidences within a tolerance.

    Two classes whose probabilities differ by less than twice the tolerance may change places.
    """
    assert found.keys() == expected.keys()
    sure = [name for name, row in expected.items() if row.margin > 2 * within]
    assert len(sure) > 0.9 * len(expected)
    assert [name for name in sure if found[name].label != expected[name].label] == []
    for name, row in expected.items():
        assert found[name].confidence == pytest.approx(row.confidence, abs=within), name


def told_provider(server: Server) -> tuple[str, str]:
    """Return the provider that the model card and the metrics tell."""
    card = server.client.get("/v1/model").json()["provider"]
    metrics = server.client.get("/metrics").text
    (of_metrics,) = re.findall(r'scda_model_info\{.*provider="(\w+)".*\} 1', metrics)
    return card, of_metrics


def test_label_with_openvino_says_what_it_says_with_onnx_runtime(
    openvino_precision: str, scda: Scda, tiny: TinyData, tiny_run: Path, tmp_path: Path
) -> None:
    expected = labelled(scda, tiny_run, tiny.target, tmp_path / "a.csv", "--provider", "cpu")
    found = labelled(scda, tiny_run, tiny.target, tmp_path / "b.csv", "--provider", OPENVINO)
    check_alike(found, expected, WITHIN[openvino_precision])
    told = [json.loads((tmp_path / name).read_text())["provider"] for name in ("a.json", "b.json")]
    assert told == ["cpu", OPENVINO]
    unequal = [found[name].confidence != row.confidence for name, row in expected.items()]
    assert any(unequal)  # another runtime did the sums


@pytest.mark.slow
def test_a_server_with_openvino_says_what_label_says_with_onnx_runtime(
    openvino_precision: str, scda: Scda, tiny: TinyData, tiny_run: Path, tmp_path: Path
) -> None:
    expected = labelled(scda, tiny_run, tiny.target, tmp_path / "a.csv", "--provider", "cpu")
    with serving(tiny_run, workers=2, SCDA_PROVIDER=OPENVINO) as server:
        assert told_provider(server) == (OPENVINO, OPENVINO)
        found = answered(server, tiny.target)
    check_alike(found, expected, WITHIN[openvino_precision])
    assert any(found[name].confidence != row.confidence for name, row in expected.items())


@pytest.mark.slow
def test_a_run_in_int8_is_labelled_and_served(scda: Scda, tiny: TinyData, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = words_of(tiny, run, precision_export="int8")
    done = scda(*words)
    assert done.returncode == 0, done.stderr
    exact, manifest = read_manifest(run / "bundle"), read_manifest(run / "bundle-int8")
    gate = manifest.quantisation
    assert gate
    assert (gate.precision, gate.model_id, gate.images) == ("int8", exact.id, 100)
    assert gate.equal_labels >= gate.min_agreement == 0.99
    assert gate.sentence in done.stderr
    exact_rows = labelled(scda, run, tiny.target, tmp_path / "exact.csv", "--provider", "cpu")
    rows = labelled(scda, run / "bundle-int8", tiny.target, tmp_path / "rows.csv")
    assert {row.model_id for row in rows.values()} == {manifest.id} != {exact.id}
    equal = [rows[name].label == row.label for name, row in exact_rows.items()]
    assert sum(equal) / len(equal) == pytest.approx(gate.equal_labels, abs=1e-6)
    differences = [abs(rows[name].confidence - row.confidence) for name, row in exact_rows.items()]
    mean = sum(differences) / len(differences)
    assert mean == pytest.approx(gate.confidence_difference, abs=1e-4)
    with serving(run / "bundle-int8", SCDA_PROVIDER="cpu") as server:
        assert server.client.get("/v1/model").json()["model_id"] == manifest.id
        assert told_provider(server) == ("cpu", "cpu")
        check_alike(answered(server, tiny.target), rows, SAME_SUMS)
    if importlib.util.find_spec("openvino"):
        by_it = ("--provider", OPENVINO)
        other = labelled(scda, run / "bundle-int8", tiny.target, tmp_path / "ov.csv", *by_it)
        check_alike(other, rows, WITHIN["int8"])
    inspected = json.loads(scda("inspect", run / "bundle-int8", "--json", "--verify").stdout)
    assert inspected["quantisation"]["model_id"] == exact.id
