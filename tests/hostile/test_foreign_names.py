"""A names.json that is damaged or copied from another model: all that reads it says so."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import scda as door
from scda.models.bundle import NAMES, read_manifest
from scda.models.errors import GateError
from tests.bundles import make_bundle, picture
from tests.conftest import Scda

D0 = "discovered-000"
OTHER = json.dumps({"model_id": "0123456789abcdef", "version": 1, "labels": {D0: "seven"}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bundle, beside the folder of the one image that it was adapted to."""
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "a.jpg").write_bytes(picture("yellow"))
    return make_bundle(tmp_path / "bundle", targets={"a.jpg": "yellow"})


@pytest.mark.parametrize(("text", "why"), [(OTHER, "names of the model"), ("{", "damaged")])
@pytest.mark.parametrize(
    "words",
    [
        lambda at: ("label", at / "bundle", at / "target", "--out", at / "rows.csv"),
        lambda at: ("names", at / "bundle", "--list"),
        lambda at: ("names", at / "bundle", "--set", f"{D0}=lemon"),
        lambda at: ("promote", at / "bundle", "--out", at / "new", "--target", at / "target"),
        lambda at: ("review", at / "bundle", "--no-browser"),
        lambda at: ("serve", at / "bundle"),
        lambda at: ("inspect", at / "bundle", "--verify"),
    ],
    ids=["label", "names", "set", "promote", "review", "serve", "inspect"],
)
def test_no_command_uses_the_names_of_another_model(
    scda: Scda,
    folder: Path,
    words: Callable[[Path], tuple[object, ...]],
    text: str,
    why: str,
) -> None:
    (folder / NAMES).write_text(text)
    done = scda(*words(folder.parent))
    assert done.returncode == 5
    last = done.stderr.splitlines()[-1]
    assert f"{folder / NAMES}: {why}" in last
    assert last.endswith("restore the file from a copy, or delete it")
    assert (folder / NAMES).read_text() == text
    assert {path.name for path in folder.parent.iterdir()} == {"bundle", "target"}


def test_the_python_api_says_which_model_the_names_are_of(folder: Path) -> None:
    (folder / NAMES).write_text(OTHER)
    wanted = f"'0123456789abcdef', expected those of {read_manifest(folder).id}"
    with pytest.raises(GateError, match=wanted):
        door.load(folder)
