import io
from pathlib import Path

import pytest

from scda.models.errors import UsageError
from scda.serve.labelling.formats.parquet import write_parquet
from scda.serve.labelling.journal import Job
from scda.serve.labelling.ray.output_folder import OutputFolder
from scda.serve.labelling.ray.parts import JOB, SUCCESS, PartsFolder
from tests.rows import ABOUT, BAD, GOOD

PART = "part-0000-0000000-0.parquet"
JOB_1: Job = {"model_id": "1", "include": ("*.jpg",)}


@pytest.fixture(params=["{}", "file://{}"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> PartsFolder:
    form: str = request.param
    return PartsFolder(form.format(tmp_path / "out"))


def part() -> bytes:
    file = io.BytesIO()
    with write_parquet(file, ABOUT) as write:
        write([GOOD, BAD, GOOD])
    return file.getvalue()


def test_parts_are_written_whole_and_counted(folder: PartsFolder, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with folder.writing(JOB_1) as before:
        assert not before
        folder.check_ours()
        assert folder.counts(PART) is None
        folder.write(PART, part())
        assert folder.counts(PART) == {
            "class_id": {"known-002": 2},
            "error_code": {"cannot_decode": 1},
        }
        (out / ".scda-part.0123.lock").touch()  # of a killed worker
        folder.finish([PART])
    assert {path.name for path in out.iterdir()} == {JOB, PART, SUCCESS}


def test_a_labelling_is_resumed_only_by_the_same_job(folder: PartsFolder) -> None:
    with folder.writing(JOB_1):  # then killed
        folder.write(PART, part())
    folder.check(resume=True)
    with pytest.raises(UsageError, match=r"out: already exists; .* or --resume to continue"):
        folder.check(resume=False)
    with folder.writing(JOB_1) as before:
        assert before == {PART}
    with (
        pytest.raises(UsageError, match="out: cannot resume: model_id was '1', is '2'; pass"),
        folder.writing({**JOB_1, "model_id": "2"}),
    ):
        pass


def test_a_driver_whose_job_was_replaced_stops(folder: PartsFolder, tmp_path: Path) -> None:
    out, other = tmp_path / "out", PartsFolder(folder.out)
    replaced = "out: another labelling writes .* model_id in _job.json is '2', expected '1'; pass"

    def label_while_the_other_starts() -> None:
        with folder.writing(JOB_1):
            with other.writing({**JOB_1, "model_id": "2"}):
                pass
            with pytest.raises(UsageError, match=replaced):
                folder.write(PART, part())
            folder.finish([])

    with pytest.raises(UsageError, match=replaced):
        label_while_the_other_starts()
    assert [path.name for path in out.iterdir()] == [JOB]  # of the other one, which goes on
    other.write(PART, part())
    other.finish([PART])


def test_a_part_written_while_the_job_is_replaced_is_not_left(
    folder: PartsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, put = PartsFolder(folder.out), OutputFolder.put
    with folder.writing(JOB_1):

        def put_late(self: OutputFolder, name: str, data: bytes) -> None:
            if name == PART:
                with other.writing({"model_id": "2"}):
                    pass
            put(self, name, data)

        monkeypatch.setattr(OutputFolder, "put", put_late)
        with pytest.raises(UsageError, match="another labelling writes to this folder"):
            folder.write(PART, part())
    assert [path.name for path in (tmp_path / "out").iterdir()] == [JOB]


def test_a_job_recorded_beside_a_new_part_is_taken_back(
    folder: PartsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = OutputFolder.put
    with folder.writing(JOB_1):

        def put_late(self: OutputFolder, name: str, data: bytes) -> None:
            if not (tmp_path / "out" / PART).exists():
                put(OutputFolder(folder.out), PART, part())
            put(self, name, data)

        monkeypatch.setattr(OutputFolder, "put", put_late)
        with (
            pytest.raises(UsageError, match=r"another labelling .* found part-.*, expected no"),
            PartsFolder(folder.out).writing({"model_id": "2"}),
        ):
            pass
        folder.finish([PART])


def test_of_two_drivers_with_one_job_the_earlier_one_stops(
    folder: PartsFolder, tmp_path: Path
) -> None:
    success = tmp_path / "out" / SUCCESS
    later = PartsFolder(folder.out)
    again = r"out: the same labelling was started again .*: process \d+ on .*; stop one of the two"

    def label_while_it_is_resumed() -> None:
        with folder.writing(JOB_1):
            folder.write(PART, part())
            with later.writing(JOB_1) as before:
                assert before == {PART}
                with pytest.raises(UsageError, match=again):
                    folder.write(PART, part())
                with pytest.raises(UsageError, match=again):
                    folder.finish([PART])
                assert not success.exists()
                later.finish([PART])
            folder.check_ours()

    with pytest.raises(UsageError, match=again):
        label_while_it_is_resumed()
    assert success.exists()
    assert later.counts(PART)


def test_a_part_written_while_the_same_job_is_started_again_stays(
    folder: PartsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    later, put = PartsFolder(folder.out), OutputFolder.put
    with folder.writing(JOB_1):

        def put_late(self: OutputFolder, name: str, data: bytes) -> None:
            if name == PART:  # the later one writes it, and is done, before the earlier one does
                with monkeypatch.context() as patched, later.writing(JOB_1):
                    patched.setattr(OutputFolder, "put", put)
                    later.write(PART, part())
                    later.finish([PART])
            put(self, name, data)

        monkeypatch.setattr(OutputFolder, "put", put_late)
        with pytest.raises(UsageError, match="the same labelling was started again"):
            folder.write(PART, part())
    assert later.counts(PART)


def test_a_driver_that_fails_takes_nothing_from_the_one_that_took_over(
    folder: PartsFolder, tmp_path: Path
) -> None:
    later, earlier = PartsFolder(folder.out), folder.writing(JOB_1)
    earlier.__enter__()
    with later.writing(JOB_1):
        earlier.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)  # before there is a part
        later.write(PART, part())
        later.finish([PART])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {JOB, PART, SUCCESS}


def test_a_part_of_another_labelling_is_told_at_the_end(
    folder: PartsFolder, tmp_path: Path
) -> None:
    other = "part-0000-0000000-1.parquet"  # the files had changed, or its writer was killed
    with folder.writing(JOB_1):
        folder.write(PART, part())
        OutputFolder(folder.out).put(other, part())
        with pytest.raises(UsageError, match=rf"out: found {other}, which another labelling wrote"):
            folder.finish([PART])
        assert not (tmp_path / "out" / SUCCESS).exists()
        (tmp_path / "out" / other).unlink()
        folder.finish([PART])


def test_a_resumed_labelling_is_not_finished_until_its_end(
    folder: PartsFolder, tmp_path: Path
) -> None:
    success = tmp_path / "out" / SUCCESS
    with folder.writing(JOB_1):
        folder.write(PART, part())
        folder.finish([PART])
    with (
        pytest.raises(UsageError, match="cannot resume: model_id"),
        folder.writing({"model_id": "2"}),
    ):
        pass
    assert success.exists()
    with folder.writing(JOB_1):
        assert not success.exists()
        folder.finish([PART])
    assert success.exists()


def test_a_part_that_is_not_whole_is_none(folder: PartsFolder) -> None:
    with folder.writing(JOB_1):
        folder.write(PART, part()[:-9])  # as a killed writer leaves it where files cannot be hidden
        assert folder.counts(PART) is None


def test_a_part_that_is_gone_is_told(folder: PartsFolder) -> None:
    with folder.writing(JOB_1):
        folder.write(PART, part())
        with pytest.raises(UsageError, match=r"out: 1 parts .* missing, such as b; rerun with"):
            folder.finish([PART, "b"])


def test_nothing_is_left_without_a_part(folder: PartsFolder, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), folder.writing(JOB_1):
        raise KeyboardInterrupt
    assert not (tmp_path / "out").exists()
    with folder.writing(JOB_1):  # then killed
        pass
    folder.check(resume=False)
    folder.check(resume=True)
    with folder.writing({"model_id": "2"}) as before:
        assert not before


def test_a_folder_of_something_else_is_refused(folder: PartsFolder, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    folder.check(resume=False)
    (tmp_path / "out" / "mine.txt").touch()
    for resume in (False, True):
        with pytest.raises(UsageError, match="out: already exists; expected a new or empty folder"):
            folder.check(resume=resume)


def test_a_machine_that_does_not_see_the_folder_is_named(folder: PartsFolder) -> None:
    with pytest.raises(UsageError, match=r"out: the machine .* finds no _job.json"):
        folder.check_ours()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = PartsFolder(f"file://{tmp_path}/file/out")
    with pytest.raises(UsageError, match="out: cannot "), folder.writing(JOB_1):
        pass
