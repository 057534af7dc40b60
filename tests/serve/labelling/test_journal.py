import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scda.models.errors import UsageError
from scda.models.files import atomic_file
from scda.models.predictor import Predictor
from scda.models.preprocess import Pixels
from scda.serve.labelling.journal import journal_path
from scda.serve.labelling.label import label
from scda.serve.labelling.outputs import Options
from scda.serve.labelling.sources import FileSelection, find_local_files
from tests.bundles import RGB, picture

ENDINGS = (".csv", ".jsonl", ".parquet", ".labelstudio.json", ".fiftyone.json")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Thirty files, every seventh of them bad, one with a name that is no UTF-8."""
    folder = tmp_path / "images"
    folder.mkdir()
    colours = list(RGB)
    for number in range(29):
        data = b"no image" if number % 7 == 3 else picture(colours[number % len(colours)])
        (folder / f"{number:02d}.jpg").write_bytes(data)
    (folder / os.fsdecode(b"9\xff.jpg")).write_bytes(picture("red"))
    return folder


class Stop(BaseException):
    """What a signal does to a labelling, without the signal."""


def run(
    predictor: Predictor, images: Path, out: Path, *, stop_at: int = 0, **options: Any
) -> dict[str, bytes]:
    """Label into `out` with every format and the features; return name → bytes."""

    def stop(done: int, total: int, failed: int) -> None:
        if stop_at and done >= stop_at:
            raise Stop

    out.mkdir(exist_ok=True)
    outs = [str(out / f"rows{ending}") for ending in ENDINGS]
    wanted = Options(embeddings=out / "rows.npy", min_confidence=0.97)
    given = {"options": wanted, "batch_size": 4, **options}
    label(predictor, [images], outs, on_progress=stop, **given)
    return {path.name: path.read_bytes() for path in out.iterdir()}


def stopped(predictor: Predictor, images: Path, out: Path, at: int, **options: Any) -> None:
    with pytest.raises(Stop):
        run(predictor, images, out, stop_at=at, **options)


def test_a_resumed_labelling_ends_as_if_it_had_not_been_stopped(
    predictor: Predictor, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(predictor, images, tmp_path / "whole")
    stopped(predictor, images, tmp_path / "out", 8)
    stopped(predictor, images, tmp_path / "out", 20, resume=True)
    calls: list[int] = []
    model = predictor.session.run

    def counted(pixels: Pixels) -> list[NDArray[np.float32]]:
        calls.append(len(pixels))
        return model(pixels)

    monkeypatch.setattr(predictor.session, "run", counted)
    resumed = run(predictor, images, tmp_path / "out", resume=True)
    assert resumed == whole  # the journal is gone, too
    assert sum(calls) <= 10  # what was done is not done again


def test_what_a_stopped_labelling_left_is_not_counted_as_hidden(
    predictor: Predictor, images: Path
) -> None:
    (images / ".hidden").touch()
    (images / ".scda-rows.csv.abcd1234").touch()
    stopped(predictor, images, images, 8)
    for recursive in (True, False):
        inputs = find_local_files(
            [images], [images / "rows.csv"], FileSelection(recursive=recursive)
        )
        assert journal_path(images / "rows.csv").is_file()
        assert inputs.count_skipped().hidden == 1


def test_a_line_cut_off_by_a_kill_is_done_again(
    predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    whole = run(predictor, images, tmp_path / "whole")
    stopped(predictor, images, tmp_path / "out", 12)
    journal = journal_path(tmp_path / "out" / "rows.csv")
    data = journal.read_bytes()
    for end in (len(data) - 1, len(data) - 200, data.index(b"\n") + 1, data.index(b"\n"), 5, 0):
        journal.write_bytes(data[:end])
        assert run(predictor, images, tmp_path / "out", resume=True) == whole
        for path in (tmp_path / "out").iterdir():
            path.unlink()


def test_without_resume_it_starts_again(predictor: Predictor, images: Path, tmp_path: Path) -> None:
    stopped(predictor, images, tmp_path / "out", 12)
    (images / "00.jpg").write_bytes(picture("cyan"))
    again = run(predictor, images, tmp_path / "out")
    assert again["rows.csv"] == run(predictor, images, tmp_path / "whole")["rows.csv"]


def test_resuming_what_never_began_begins(
    predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    whole = run(predictor, images, tmp_path / "whole")
    assert run(predictor, images, tmp_path / "out", resume=True) == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 5}, "batch_size was 4, is 5"),
        ({"selection": FileSelection(recursive=False)}, "recursive was True, is False"),
        ({"selection": FileSelection(exclude=("x",))}, r"exclude was \[\], is \['x'\]"),
        ({"options": Options(top=2)}, "top was None, is 2"),
        ({"options": Options(min_confidence=0.5)}, "min_confidence was 0.97, is 0.5"),
    ],
)
def test_another_job_is_not_resumed(
    predictor: Predictor, images: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    stopped(predictor, images, tmp_path / "out", 12)
    with pytest.raises(UsageError, match=message):
        run(predictor, images, tmp_path / "out", resume=True, **change)
    assert journal_path(tmp_path / "out" / "rows.csv").is_file()


def test_another_input_is_not_resumed(predictor: Predictor, images: Path, tmp_path: Path) -> None:
    stopped(predictor, images, tmp_path / "out", 12)
    (images / "00.jpg").unlink()
    with pytest.raises(UsageError, match=r"files up to 03\.jpg have changed"):
        run(predictor, images, tmp_path / "out", resume=True)


def test_files_that_came_after_what_is_done_are_labelled_as_well(
    predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    stopped(predictor, images, tmp_path / "out", 12)
    (images / "zz.jpg").write_bytes(picture("cyan"))
    assert b"zz.jpg" in run(predictor, images, tmp_path / "out", resume=True)["rows.csv"]


def test_standard_output_cannot_be_resumed(predictor: Predictor, images: Path) -> None:
    with pytest.raises(UsageError, match="needs an output file"):
        label(predictor, [images], ["-"], resume=True)


def test_two_labellings_of_one_output_do_not_meet(
    predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    whole, out = run(predictor, images, tmp_path / "whole"), tmp_path / "out"
    refused = 0

    def meet(done: int, total: int, failed: int) -> None:
        nonlocal refused
        for resume in (False, True):
            with pytest.raises(UsageError, match="another process is writing it; wait"):
                run(predictor, images, out, resume=resume)
            refused += 1

    out.mkdir()
    outs = [str(out / f"rows{ending}") for ending in ENDINGS]
    options = Options(embeddings=out / "rows.npy", min_confidence=0.97)
    label(predictor, [images], outs, options=options, batch_size=4, on_progress=meet)
    assert refused == 2 * 8
    assert {path.name: path.read_bytes() for path in out.iterdir()} == whole


def test_only_what_a_killed_labelling_left_is_removed(
    predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    left, others = tmp_path / ".scda-rows.csv.abcd1234", tmp_path / ".scda-rows.csv.jsonl.abcd1234"
    for path in (left, others):
        path.touch()
    with atomic_file(tmp_path / "rows.csv"):  # of a labelling with another first output
        label(predictor, [images], [str(tmp_path / "rows.csv")])
        assert not left.exists()
    assert others.exists()


KILLED = """
import sys
from pathlib import Path
from scda.models.predictor import load_predictor
from scda.serve.labelling.label import label
from scda.serve.labelling.outputs import Options

bundle, images, out = map(Path, sys.argv[1:])
label(
    load_predictor(bundle, provider="cpu", threads=1),
    [images],
    [str(out / "rows.csv"), str(out / "rows.parquet")],
    options=Options(embeddings=out / "rows.npy"),
    batch_size=2,
    resume=True,
    on_progress=lambda done, total, failed: (print(done, flush=True), sys.stdin.readline()),
)
"""  # goes on when it is told to, as a slow test would otherwise kill what has ended


def test_a_labelling_killed_again_and_again_ends_whole(
    bundle: Path, predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    out, generator = tmp_path / "out", random.Random(0)
    out.mkdir()
    words = [sys.executable, "-c", KILLED, str(bundle), str(images), str(out)]
    for _ in range(3):
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(generator.randint(1, 4)):
            process.stdout.readline()
            process.stdin.write("go on\n")
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()
        assert not (out / "rows.csv").exists()
        assert json.loads(journal_path(out / "rows.csv").read_bytes().splitlines()[0])["batch_size"]
    subprocess.run(words, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    whole = tmp_path / "whole"
    whole.mkdir()
    outs = [str(whole / "rows.csv"), str(whole / "rows.parquet")]
    label(predictor, [images], outs, options=Options(embeddings=whole / "rows.npy"), batch_size=2)
    assert sorted(path.name for path in out.iterdir()) == ["rows.csv", "rows.npy", "rows.parquet"]
    for path in whole.iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes()
    assert np.isnan(np.load(out / "rows.npy")).any(axis=1).sum() == 4  # the bad files
