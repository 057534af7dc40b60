import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from filelock import FileLock

from scda.models.errors import UsageError
from scda.models.files import (
    atomic_file,
    atomic_folder,
    lock,
    lock_path,
    remove_left_behind,
    write_atomically,
)

Names = list[str]


def fill(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())


def entries(root: Path) -> Names:
    """Everything under a folder, hidden or not."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def failing(number: int = 1) -> Callable[..., None]:
    """A system call that the disk refuses, the `number`-th time."""
    calls = iter(range(1, 100))
    original = os.rename

    def call(*arguments: Path) -> None:
        if next(calls) == number:
            raise OSError(28, "No space left on device")
        original(*arguments)

    return call


@pytest.mark.parametrize(("data", "expected"), [(b"\0\xff", b"\0\xff"), ("ä\n", b"\xc3\xa4\n")])
def test_a_file_is_written_or_replaced(tmp_path: Path, data: bytes | str, expected: bytes) -> None:
    path = tmp_path / "names.json"
    path.write_text("old")
    write_atomically(path, data)
    assert path.read_bytes() == expected
    assert entries(tmp_path) == ["names.json"]


@pytest.fixture(params=[0o022, 0o002, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_written_file_has_the_mode_that_the_umask_gives(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "a"
    write_atomically(path, "text")
    assert mode(path) == 0o666 & ~umask
    path.chmod(0o640)
    write_atomically(path, "other text")
    assert mode(path) == 0o640


def test_a_written_folder_has_the_mode_that_the_umask_gives(tmp_path: Path, umask: int) -> None:
    with atomic_folder(tmp_path / "bundle") as draft:
        fill(draft, "a", "b/c")
    modes = [mode(tmp_path / name) for name in ("bundle", "bundle/b", "bundle/a", "bundle/b/c")]
    assert modes == [0o777 & ~umask] * 2 + [0o666 & ~umask] * 2


@pytest.mark.parametrize("call", ["replace", "fsync", "chmod"])
def test_a_file_that_cannot_be_written_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "names.json"
    path.write_text("old")
    monkeypatch.setattr(os, call, failing())
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert entries(tmp_path) == ["names.json"]


def test_a_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "bundle"
    with atomic_folder(folder) as draft:
        fill(draft, "a", "b/c")
        assert not folder.exists()
    assert entries(tmp_path) == [
        "run",
        "run/bundle",
        "run/bundle/a",
        "run/bundle/b",
        "run/bundle/b/c",
    ]


def test_a_folder_replaces_the_one_before(tmp_path: Path) -> None:
    fill(tmp_path, "bundle/old")
    with atomic_folder(tmp_path / "bundle") as draft:
        fill(draft, "new")
        assert "bundle/old" in entries(tmp_path)
    assert entries(tmp_path) == ["bundle", "bundle/new"]


def replace(folder: Path, *, then: Callable[[], object]) -> None:
    with atomic_folder(folder) as draft:
        fill(draft, "new")
        then()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_folder_whose_filling_fails_stays_as_it_was(
    tmp_path: Path, error: type[BaseException]
) -> None:
    def interrupt() -> None:
        raise error

    fill(tmp_path, "bundle/old")
    with pytest.raises(error):
        replace(tmp_path / "bundle", then=interrupt)
    assert entries(tmp_path) == ["bundle", "bundle/old"]


@pytest.mark.parametrize(("call", "number"), [("fsync", 1), ("rename", 1), ("rename", 2)])
def test_a_folder_that_cannot_be_put_in_place_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    fill(tmp_path, "bundle/old")
    with pytest.raises(OSError, match="No space left"):
        replace(tmp_path / "bundle", then=lambda: monkeypatch.setattr(os, call, failing(number)))
    assert entries(tmp_path) == ["bundle", "bundle/old"]


def test_a_first_folder_that_cannot_be_put_in_place_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "rename", failing())
    with pytest.raises(OSError, match="No space left"):
        replace(tmp_path / "bundle", then=lambda: None)
    assert entries(tmp_path) == []


@pytest.mark.parametrize("keep", [True, False])
def test_a_folder_that_appears_meanwhile_is_replaced_only_where_it_may_be(
    tmp_path: Path, *, keep: bool
) -> None:
    folder = tmp_path / "promoted"
    with (
        pytest.raises(UsageError, match="promoted exists already") if keep else nullcontext(),
        atomic_folder(folder, replace=not keep) as draft,
    ):
        fill(draft, "new")
        fill(folder, "mine")
    assert entries(tmp_path) == ["promoted", "promoted/mine" if keep else "promoted/new"]


@pytest.mark.parametrize("call", ["mkdir", "rename"])
def test_an_error_names_the_folder_and_not_its_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    folder = tmp_path / "bundle"
    with pytest.raises(FileNotFoundError) as inside, atomic_folder(folder) as draft:
        (draft / "none" / "a").touch()
    assert inside.value.filename == str(folder / "none" / "a")

    original = getattr(os, call)

    def refuse(path: Path, *others: object) -> None:
        if Path(path).name.startswith(".scda-"):
            raise OSError(28, "No space left on device", os.fspath(path))
        original(path, *others)

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(OSError, match="No space left") as error, atomic_folder(folder):
        pass
    assert error.value.filename == str(folder)
    assert entries(tmp_path) == []


def test_an_unfinished_file_is_hidden_and_locked(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "rows.csv") as file:
        file.write(b"x")
        (draft,) = tmp_path.glob(".scda-rows.csv.????????")
        with lock(draft) as is_ours:
            assert not is_ours
    assert entries(tmp_path) == ["rows.csv"]


def test_an_error_in_the_block_passes_unchanged_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_file(tmp_path / "rows.csv"):
        (tmp_path / "none").read_bytes()
    assert entries(tmp_path) == []


def test_a_file_that_cannot_be_opened_is_a_usage_error(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"none/rows.csv: cannot write: No such"),
        atomic_file(tmp_path / "none" / "rows.csv"),
    ):
        pass


def test_a_lock_is_held_by_one_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for _ in range(2):
        with lock(path) as is_ours:
            assert is_ours
            assert entries(tmp_path) == [lock_path(path).name]
            with lock(path) as is_ours_too:
                assert not is_ours_too
        assert entries(tmp_path) == []


def test_drafts_of_killed_processes_are_removed(tmp_path: Path) -> None:
    fill(tmp_path, ".scda-a[1].csv.01234567", ".scda-a[1].csv.89abcdef.lock", ".scda-a[1].csv.x.y")
    with atomic_file(tmp_path / "a[1].csv") as file:
        remove_left_behind(tmp_path / "a[1].csv")
        file.write(b"data")
    assert entries(tmp_path) == [".scda-a[1].csv.x.y", "a[1].csv"]


def test_without_locks_the_work_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: FileLock) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    with lock(tmp_path / "rows.csv") as is_ours:
        assert is_ours
