import os
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from scda.models import memory
from scda.models.decoding import limits as decoding_limits
from scda.models.decoding.decoder import Decoder, Job
from scda.models.decoding.decoders import CostlyImages, decoders
from scda.models.decoding.limits import ProcessLimits
from scda.models.errors import ImageError
from scda.models.limits import ImageLimits
from scda.models.predictor import Predictor
from scda.models.preprocess import Preprocessing
from tests.nasty import encode, four, png

FAULTS = Path(__file__).parents[2] / "fixtures" / "faults"
PLENTY = ProcessLimits(mebibytes=300, seconds=10, patience=60)
SMALL = encode(four(), "AVIF")


@pytest.fixture(scope="module")
def preprocessing(predictor: Predictor) -> Preprocessing:
    return predictor.manifest.preprocessing


def limited(process: ProcessLimits) -> Decoder:
    return Decoder(Job(process=process))


def ask(decoder: Decoder, preprocessing: Preprocessing, data: bytes) -> str:
    """Return the error of an image, or "ok"."""
    (found,) = decoder.prepare(preprocessing, [data])
    return f"{found.code}: {found}" if isinstance(found, ImageError) else "ok"


def test_an_image_that_needs_too_much_memory_is_an_error_and_the_process_goes_on(
    preprocessing: Preprocessing,
) -> None:
    with closing(limited(ProcessLimits(mebibytes=40, seconds=10, patience=60))) as decoder:
        first = decoder._process.pid
        error = ask(decoder, preprocessing, png(6000, 6000, rows=bytes(1000)))
        assert error == "cannot_decode: decoding needs more than 40 MiB of memory"
        assert ask(decoder, preprocessing, SMALL) == "ok"
        assert decoder._process.pid == first
        # OpenJPEG does not say that the memory was too small.
        black = (FAULTS / "jp2-black-50mp.jp2").read_bytes()
        assert ask(decoder, preprocessing, black).startswith("cannot_decode: ")
        assert psutil.Process(first).memory_info().rss < 150 * 2**20


@pytest.mark.slow
def test_an_image_that_takes_too_long_is_an_error_and_the_next_one_is_not(
    preprocessing: Preprocessing,
) -> None:
    with closing(limited(ProcessLimits(mebibytes=1100, seconds=1, patience=60))) as decoder:
        texts = b"P3 1600 1600 255 " + b"7 " * 1600 * 1600 * 3  # read by Python alone
        assert ask(decoder, preprocessing, texts) == (
            "cannot_decode: decoding needs more than 1 seconds of processor time"
        )
        assert ask(decoder, preprocessing, SMALL) == "ok"


def test_a_process_that_does_nothing_is_ended(preprocessing: Preprocessing) -> None:
    with closing(limited(PLENTY)) as decoder:
        assert ask(decoder, preprocessing, SMALL) == "ok"
        os.kill(decoder._process.pid, signal.SIGSTOP)
        decoder._job = Job(process=replace(PLENTY, patience=1))
        assert ask(decoder, preprocessing, SMALL) == (
            "cannot_decode: decoding did not end within 1 seconds"
        )
        decoder._job = Job(process=PLENTY)
        assert ask(decoder, preprocessing, SMALL) == "ok"


@pytest.mark.slow
def test_the_time_of_a_process_is_that_of_each_image(preprocessing: Preprocessing) -> None:
    texts = b"P3 400 400 255 " + b"7 " * 400 * 400 * 3
    with closing(limited(ProcessLimits(mebibytes=300, seconds=2, patience=60))) as decoder:
        process = psutil.Process(decoder._process.pid)
        while sum(process.cpu_times()[:2]) < 3:
            assert ask(decoder, preprocessing, texts) == "ok"
        assert process.pid == decoder._process.pid


def test_costly_images_are_read_as_cheap_ones_are(
    preprocessing: Preprocessing, tmp_path: Path
) -> None:
    for name in ("AVIF", "JPEG2000", "TIFF"):
        (tmp_path / name).write_bytes(encode(four(), name))
    paths = sorted(tmp_path.iterdir())
    for count in (0, 1):
        with decoders(preprocessing, count) as decode:
            for found, path in zip(decode(paths), paths, strict=True):
                assert not isinstance(found, ImageError), path
                assert found.shape == preprocessing.shape


def test_the_bound_of_pixels_holds_in_the_process(preprocessing: Preprocessing) -> None:
    costly = CostlyImages(ImageLimits(max_pixels=100, max_bytes=1000), most=1, process=PLENTY)
    found = costly.prepare(preprocessing, SMALL)
    assert isinstance(found, ImageError)
    assert found.code == "too_many_pixels"
    costly.close()


def test_no_more_processes_than_the_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = ProcessLimits.for_images(ImageLimits())
    assert (limits.mebibytes, limits.seconds) == (1082, 10)
    for gigabytes, most, expected in ((1, 8, 1), (2, 8, 1), (5, 8, 2), (64, 8, 8), (64, 1, 1)):
        monkeypatch.setattr(decoding_limits, "usable_memory", lambda g=gigabytes: g << 30)
        assert limits.at_once(most) == expected
    larger = ProcessLimits.for_images(ImageLimits(max_pixels=200_000_000))
    assert larger.seconds == 40


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    folders = [tmp_path / name for name in ("v1", "v2", "parent")]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(memory, "control_groups", lambda controller: folders)
    return folders


def test_the_memory_is_that_of_the_smallest_group(groups: list[Path]) -> None:
    total = memory.usable_memory()
    (groups[0] / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (groups[1] / "memory.max").write_text("max\n")
    assert memory.usable_memory() == total
    (groups[2] / "memory.max").write_text("2000000\n")
    (groups[0] / "memory.limit_in_bytes").write_text("3000000\n")
    assert memory.usable_memory() == 2_000_000


def test_processes_end_when_nobody_holds_them(preprocessing: Preprocessing) -> None:
    before = set(psutil.Process().children())
    costly = CostlyImages(ImageLimits(), most=1, process=PLENTY)
    costly.prepare(preprocessing, SMALL)
    (process,) = set(psutil.Process().children()) - before
    del costly
    psutil.wait_procs([process], timeout=60)
    assert not process.is_running()
