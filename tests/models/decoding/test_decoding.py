import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from scda.models.decoding.cheap import prepare_cheap
from scda.models.decoding.decoder import Decoder, Job
from scda.models.decoding.decoders import decoders
from scda.models.errors import DataError, ImageError
from scda.models.predictor import Predictor
from scda.models.preprocess import Prepared, Preprocessing
from scda.serve.labelling.journal import journal_path
from scda.serve.labelling.label import label
from tests.bundles import RGB, picture
from tests.nasty import nasty_files
from tests.waiting import wait_for

# Python reads a module of this name before any other: here it makes three bytes deadly.
DEADLY = """
import os, signal
from scda.models.decoding import content
read = content.read_bytes

def deadly(path, **limits):
    data = read(path, **limits)
    if data == b"die":
        os.kill(os.getpid(), signal.SIGSEGV)
    return data

content.read_bytes = deadly
"""


@pytest.fixture
def preprocessing(predictor: Predictor) -> Preprocessing:
    return predictor.manifest.preprocessing


@pytest.fixture
def deadly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that ends every decoding process."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(DEADLY)
    paths = [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "die.jpg").write_bytes(b"die")
    return tmp_path / "images" / "die.jpg"


def said(prepared: Prepared | None) -> str | bytes:
    # Here, where warnings are errors, the message may be another one.
    assert prepared is not None
    return prepared.code if isinstance(prepared, ImageError) else prepared.tobytes()


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # ended; nobody has asked how


def test_a_process_says_what_this_one_would(preprocessing: Preprocessing, tmp_path: Path) -> None:
    files = {name: file.data for name, file in nasty_files().items()}
    odd = os.fsdecode(b"9\xff\n.jpg")
    paths = [tmp_path / name for name in (*files, odd, "none.jpg")]
    for path, data in zip(paths, [*files.values(), picture("red")], strict=False):
        path.write_bytes(data)
    with decoders(preprocessing, 0) as decode:
        wanted = decode([*paths, tmp_path])
    with decoders(preprocessing, 2) as decode:
        for _ in range(2):
            found = decode([*paths, tmp_path])
            assert list(map(said, found)) == list(map(said, wanted))
    assert {type(prepared) for prepared in found} == {ImageError, np.ndarray}


def test_a_file_that_kills_its_process_is_a_bad_one_and_the_rest_are_not(
    predictor: Predictor, deadly: Path, tmp_path: Path
) -> None:
    for number in range(5):
        (deadly.parent / f"{number}.jpg").write_bytes(picture("red"))
    (deadly.parent / "zz.jpg").write_bytes(b"die")
    out = tmp_path / "rows.csv"
    summary = label(predictor, [deadly.parent], [str(out)], batch_size=4, workers=2)
    assert (summary.labels, summary.errors) == ({"red": 5}, {"cannot_decode": 2})
    assert f"the file ended the decoding process ({-signal.SIGSEGV})" in out.read_text()


def test_a_process_that_somebody_kills_is_missed_by_no_file(
    preprocessing: Preprocessing, tmp_path: Path
) -> None:
    path = tmp_path / "red.jpg"
    path.write_bytes(picture("red"))
    (wanted,) = prepare_cheap(preprocessing, [path])
    assert wanted is not None
    with closing(Decoder(Job())) as decoder:
        for _ in range(2):
            decoder._process.kill()
            assert [said(found) for found in decoder.prepare(preprocessing, [path, path])] == [
                said(wanted)
            ] * 2


def test_a_process_that_cannot_start_is_told(
    preprocessing: Preprocessing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with decoders(preprocessing, 1) as decode:
        for _ in range(2):  # the next batch must not meet the dead process of the first
            with pytest.raises(DataError, match=r"start .*1\); use --workers 0 to decode"):
                decode([tmp_path / "red.jpg"])


def test_a_process_that_the_system_refuses_is_told(
    preprocessing: Preprocessing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/none")
    with pytest.raises(DataError, match=r"cannot start \(No such file .*--workers 0"):
        Decoder(Job())


def test_processes_end_with_the_work(preprocessing: Preprocessing) -> None:
    with closing(Decoder(Job())) as decoder:
        process = decoder._process.pid
        decoder.prepare(preprocessing, [])
        assert is_running(process)
    assert not is_running(process)


LABELLING = """
import sys, time
from pathlib import Path
from scda.models.predictor import load_predictor
from scda.models.decoding import decoder
from scda.serve.labelling.label import label

bundle, images, out = map(Path, sys.argv[1:])
started = decoder._started

def noted(*what):
    process = started(*what)
    print(process.pid, flush=True)
    return process

decoder._started = noted

def slowly(done, total, failed):
    print(done, flush=True)
    time.sleep(10)  # it is stopped before

predictor = load_predictor(bundle, provider="cpu", threads=1)
try:
    label(
        predictor, [images], [str(out)], batch_size=2, workers=2, resume=True, on_progress=slowly
    )
except KeyboardInterrupt:
    sys.exit(130)
"""


def labelling(bundle: Path, images: Path, out: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A labelling that has done its first rows, and its decoding processes."""
    words = [sys.executable, "-c", LABELLING, str(bundle), str(images), str(out)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout
    decoding = [int(process.stdout.readline()) for _ in range(2)]
    assert int(process.stdout.readline()) == 2
    return process, decoding


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(60):
        (folder / f"{number:02d}.jpg").write_bytes(picture(list(RGB)[number % 5]))
    return folder


def test_no_process_outlives_a_killed_labelling(bundle: Path, images: Path, tmp_path: Path) -> None:
    process, decoding = labelling(bundle, images, tmp_path / "rows.csv")
    assert all(map(is_running, decoding))
    process.kill()
    process.communicate()
    wait_for(lambda: any(map(is_running, decoding)), False)


def test_ctrl_c_ends_it_in_order_and_it_goes_on(
    bundle: Path, predictor: Predictor, images: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rows.csv"
    process, decoding = labelling(bundle, images, out)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all of the group
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (130, "")
    assert not any(map(is_running, decoding))
    assert journal_path(out).stat().st_size > 0
    assert not out.exists()
    summary = label(predictor, [images], [str(out)], batch_size=2, resume=True)
    assert 2 <= summary.resumed < 60
    label(predictor, [images], [str(tmp_path / "whole.csv")], batch_size=2)
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
