"""Commands where nothing can be written: as another user, without a home and without a network."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bundles import make_bundle, picture
from tests.locked import PORT, Room

pytestmark = pytest.mark.slow  # starts the real programs; needs root


def nobody(folder: Path) -> Room:
    return Room(folder)


def unknown_and_without_tmp(folder: Path) -> Room:
    return Room(folder, uid=54321, tmp_mb=0)  # a user that /etc/passwd does not have


ROOMS = [nobody, unknown_and_without_tmp]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a bundle and an image of each way of decoding: here, and in a process."""
    make_bundle(tmp_path / "bundle")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "red.jpg").write_bytes(picture("red"))
    (tmp_path / "photos" / "blue.tif").write_bytes(picture("blue", kind="TIFF"))
    return tmp_path


@pytest.mark.parametrize("room", ROOMS)
def test_a_server_starts_and_answers(folder: Path, room: Callable[[Path], Room]) -> None:
    images = [folder / "photos" / "red.jpg", folder / "photos" / "blue.tif"]
    done = room(folder).run("scda-adapt", "serve", "bundle", images=images)
    assert [answer.get("label") for answer in done.answers] == ["red", "blue"], done.err
    assert done.code == 0
    assert all(" INFO " in line for line in done.err.splitlines())


READS = ["label bundle photos --out -", "inspect bundle --verify", "doctor bundle", "names bundle"]


@pytest.mark.parametrize("words", READS)
def test_a_command_that_only_reads_needs_no_place_to_write(folder: Path, words: str) -> None:
    done = unknown_and_without_tmp(folder).run("scda-adapt", *words.split())
    assert done.code == 0, done.err
    assert done.out
    assert "Traceback" not in done.err


WRITES = [
    "label bundle photos --out labels.csv",
    "label bundle photos --sort-into sorted",
    "names bundle --set discovered-000=pen",
    "train --source photos --target photos --out run",
    "demo",
]


@pytest.mark.parametrize("words", WRITES)
@pytest.mark.parametrize("room", ROOMS)
def test_a_command_that_writes_says_in_one_line_that_it_cannot(
    folder: Path, words: str, room: Callable[[Path], Room]
) -> None:
    done = room(folder).run("scda-adapt", *words.split())
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert line.startswith("scda-adapt: ")


@pytest.mark.parametrize("closed", ["bundle", "bundle/model.onnx", "bundle/bundle.json"])
def test_a_bundle_that_is_closed_to_the_user_is_one_line(folder: Path, closed: str) -> None:
    (folder / closed).chmod(0)
    done = Room(folder).run("scda-adapt", "serve", "bundle")
    assert done.code in (2, 5)
    (line,) = done.err.splitlines()
    assert "bundle" in line


def test_bentoml_starts_with_a_home_in_tmp(folder: Path) -> None:
    """As docs/deploying.md says; BentoML itself fails without one."""
    environment = (("BENTOML_HOME", "/tmp/bentoml"), ("SCDA_BUNDLE", str(folder / "bundle")))
    done = Room(folder, environment=environment).run(
        *("bentoml", "serve", "scda.serve.service:Classifier", "--port", PORT),
        images=[folder / "photos" / "red.jpg", folder / "photos" / "blue.tif"],
    )
    assert [answer.get("label") for answer in done.answers] == ["red", "blue"], done.err
    assert "Traceback" not in done.out + done.err
