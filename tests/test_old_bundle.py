"""A bundle, its names and its answers, all written by an earlier state of the code."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scda.models.bundle import read_manifest
from scda.models.images import read_file
from scda.models.predictor import load_predictor

WRITTEN = Path(__file__).parent / "fixtures" / "bundle-0.1"
BUNDLE = WRITTEN / "bundle"
ANSWERS: dict[str, dict[str, Any]] = json.loads((WRITTEN / "answers.json").read_text())


def approximately(value: Any) -> Any:
    """A JSON value whose numbers, at any depth, may differ by 1e-6."""
    if isinstance(value, dict):
        return {name: approximately(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [approximately(entry) for entry in value]
    return pytest.approx(value, abs=1e-6) if isinstance(value, float) else value


def test_an_old_bundle_answers_as_it_did() -> None:
    predictor = load_predictor(BUNDLE, provider="cpu", threads=1)
    pixels = [predictor.prepare(read_file(WRITTEN / "images" / name)) for name in ANSWERS]
    for found, expected in zip(predictor.predict(pixels), ANSWERS.values(), strict=True):
        assert found.to_json() == approximately(expected)


def scda_adapt(*words: object) -> None:
    command = [sys.executable, "-m", "scda.adapt", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def labels(folder: Path) -> dict[str, str]:
    predictor = load_predictor(folder, provider="cpu", threads=1)
    return {one.class_id: one.label for one in predictor.active_classes}


def test_an_old_bundle_verifies() -> None:
    assert read_manifest(BUNDLE).id == "d3692e80b6ecd155"
    scda_adapt("inspect", BUNDLE, "--verify")


def test_old_names_are_honoured_and_can_be_changed(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(BUNDLE, folder)
    known = {f"known-{number:03d}": str(number) for number in range(5)}  # 5 is merged into 1
    assert labels(folder) == {**known, "discovered-000": "curl", "unknown": "unknown"}
    scda_adapt("names", folder, "--undo")  # the drop of the second discovered class
    discovered = {"discovered-000": "curl", "discovered-001": "discovered-001"}
    assert labels(folder) == {**known, **discovered}
