from pathlib import Path

import pytest

from scda.models.decoding.stored import file_system_of, read_stored
from scda.models.errors import ImageError, UsageError
from scda.models.limits import MAX_BYTES
from scda.serve.labelling.object_stores import StoredFiles
from scda.serve.labelling.sources import ALL_FILES, FileSelection, find_local_files


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    names = ("b.jpg", "a/z.jpg", "a/deep er/x#1%20.jpg", "a.jpg", ".hidden", ".git/x", "ä.jpg")
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def listed(
    folder: Path, selection: FileSelection = ALL_FILES, *, alone: bool = True
) -> list[tuple[str, str]]:
    return list(StoredFiles(f"file://{folder}", selection, alone))


@pytest.mark.parametrize(
    "selection",
    [ALL_FILES, FileSelection(recursive=False), FileSelection(include=("a*",), exclude=("*.jpg",))],
)
def test_files_behind_a_uri_are_those_of_the_folder_in_its_order(
    photos: Path, selection: FileSelection
) -> None:
    local = [(name, f"file://{path}") for name, path in find_local_files([photos], (), selection)]
    assert listed(photos, selection) == local
    assert len(listed(photos)) == 5


def test_of_several_uris_a_path_is_the_whole_uri(photos: Path) -> None:
    rows = listed(photos / "a", alone=False)
    assert rows == [(f"file://{photos}/a/{n}",) * 2 for n in ("deep er/x#1%20.jpg", "z.jpg")]
    uri = f"file://{photos}/b.jpg"
    assert list(StoredFiles(uri, ALL_FILES, alone=True)) == [(uri, uri)]


def test_every_listed_file_is_read_whatever_its_name(photos: Path) -> None:
    assert [read_stored(uri).decode() for _, uri in listed(photos)] == [
        name for name, _ in listed(photos)
    ]
    assert read_stored(str(photos / "b.jpg")) == b"b.jpg"


def test_what_is_not_there_is_unreadable(photos: Path) -> None:
    for name in (f"file://{photos}/none", f"file://{photos}/a", str(photos / "none"), "x://y/z"):
        with pytest.raises(ImageError) as raised:
            read_stored(name)
        assert raised.value.code == "unreadable"


def test_a_file_too_large_is_not_read(photos: Path) -> None:
    with (photos / "b.jpg").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    for name in (f"file://{photos}/b.jpg", str(photos / "b.jpg")):
        with pytest.raises(ImageError, match="the limit is 67,108,864") as raised:
            read_stored(name)
        assert raised.value.code == "too_many_bytes"


def test_a_folder_that_cannot_be_read_is_one_file(photos: Path) -> None:
    (photos / "z").mkdir()
    files = iter(StoredFiles(f"file://{photos}", ALL_FILES, alone=True))
    next(files)
    (photos / "z").rmdir()
    assert ("z", f"file://{photos}/z") in list(files)


def test_a_uri_that_leads_nowhere_is_named(photos: Path) -> None:
    with pytest.raises(UsageError, match="none: no such file or folder"):
        listed(photos / "none")
    with pytest.raises(UsageError, match="x://y/: cannot be reached: Unrecognized filesystem"):
        file_system_of("x://y/z")
