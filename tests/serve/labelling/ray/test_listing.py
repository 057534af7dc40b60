import os
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from scda.models.errors import UsageError
from scda.serve.labelling.ray.counting import counted
from scda.serve.labelling.ray.listing import SharedFileLists, Source, list_parts, part_sizes
from scda.serve.labelling.ray.validation import find_sources
from scda.serve.labelling.sources import ALL_FILES, FileSelection, find_local_files


def listed(
    sources: list[Source], *written: str, here: str = "/none", job_key: bytes = b"1"
) -> list[dict[str, Any]]:
    batch = {"item": range(len(sources))}
    tables = list_parts(batch, sources, here, 1, frozenset(written), job_key)
    return [row for table in tables for row in table.to_pylist()]


def lists(path: Path, selection: FileSelection = ALL_FILES) -> list[Source]:
    return find_sources([], str(path), selection)


def test_parts_are_few_when_there_are_many_files() -> None:
    sizes = list(islice(part_sizes(8, 1), 1100))
    assert sizes[:512] == [256] * 512  # two hundred workers are busy with 10^5 files
    assert sizes[512:1024] == [2048] * 512
    assert set(sizes[1024:]) == {16_384}
    assert sum(sizes[:1024]) + 16_384 * 6_032 > 10**8  # in 7,056 files
    assert list(islice(part_sizes(1, 1000), 3)) == [32, 256, 2048]  # many sources: fewer small ones
    assert max(islice(part_sizes(100, 1000), 9)) == 131_000  # whole batches
    assert max(islice(part_sizes(10**6, 1), 1025)) == 10**6


def test_parts_hold_every_file_once_in_order(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("".join(f"{i}.jpg\n" for i in range(100)))
    parts = listed(lists(tmp_path / "names"))
    assert [len(part["names"]) for part in parts] == [32, 32, 32, 4]
    assert [n for part in parts for n in part["names"]] == [b"%d.jpg" % i for i in range(100)]
    assert parts[0]["files"][0] == b"/none/0.jpg"
    assert len({part["part"] for part in parts}) == 4
    assert listed(lists(tmp_path / "names"), *(part["part"] for part in parts)) == parts


def test_parts_of_two_jobs_have_no_name_in_common(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("a.jpg\nb.jpg\n")
    ((one,), (other,)) = (listed(lists(tmp_path / "names"), job_key=key) for key in (b"1", b"2"))
    assert one["names"] == other["names"]
    assert one["part"] != other["part"]


def test_other_files_than_those_of_a_written_part_are_refused(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("a.jpg\nb.jpg\n")
    (part,) = listed(lists(tmp_path / "names"))
    (tmp_path / "names").write_text("a.jpg\nc.jpg\n")
    with pytest.raises(UsageError, match=r"the files up to c\.jpg have changed"):
        listed(lists(tmp_path / "names"), part["part"])


def test_relative_files_are_those_of_the_driver_s_folder(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("a.jpg\n/b.jpg\nfile:///c d.jpg\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.jpg").touch()
    sources: list[Source] = [find_local_files([tmp_path / "sub"], []), *lists(tmp_path / "names")]
    local, shared = listed(sources)
    assert (local["names"], local["files"]) == ([b"a.jpg"], [os.fsencode(tmp_path / "sub/a.jpg")])
    assert shared["files"] == [b"/none/a.jpg", b"/b.jpg", b"file:///c d.jpg"]


def test_a_folder_of_lists_is_read_in_order_by_path_or_uri(tmp_path: Path) -> None:
    folder = tmp_path / "lists"
    folder.mkdir()
    for name, text in {"2": "c.jpg\nd.txt\n", "1": "a.jpg\0b\n.jpg\0", ".x": "hidden"}.items():
        (folder / name).write_text(text)
    for given in (str(folder), f"file://{folder}/"):
        (source,) = find_sources([], given, FileSelection(include=("*.jpg",)))
        assert [name for name, _ in source] == ["a.jpg", "b\n.jpg", "c.jpg"]
    (source,) = find_sources([], f"file://{folder}/1", ALL_FILES)
    assert isinstance(source, SharedFileLists)
    assert source.lists == (f"file://{folder}/1",)
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match="none: expected a list, or a folder of lists"):
        lists(tmp_path / "none")


def test_files_are_counted_while_the_first_are_labelled() -> None:
    with counted([range(70), range(30)]) as total:
        while not total():
            pass
        assert total() == 100

    def fails() -> Any:
        yield "a"
        raise UsageError("cannot be listed")

    with counted([fails()]) as total:
        assert total() == 0
    with counted(iter(lambda: range(10**6), None)) as total:  # endless: the end stops it
        assert total() == 0
