"""Files that vanish or change while a run is under way, or before its images are promoted."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from scda.adapt.data.features import Extracted
from scda.adapt.data.image_files import Images, Stamp, read_stamp
from scda.adapt.data.recorded import restore_lost
from scda.adapt.export.class_files import EXEMPLARS
from scda.adapt.pipeline.run import TrainResult, train
from scda.adapt.report.thumbnails import make_thumbnails
from scda.adapt.runs.images_table import read_images, write_images
from scda.adapt.runs.tables import read_rejected
from scda.adapt.runtime.progress import Reporter
from scda.adapt.training.runner import Runner
from scda.adapt.training.state import RunState
from scda.models.bundle import read_manifest
from scda.models.decoding.reading import IN_FULL
from scda.models.errors import DataError, GateError, ImageError, UsageError
from scda.serve.files.target_images import open_target_images
from scda.serve.review.promote import promote
from tests.bundles import make_bundle, picture
from tests.conftest import TinyData

pytestmark = pytest.mark.usefixtures("no_figures")


class Stopped(BaseException):
    """Stops a training in a test."""


def copied(tiny: TinyData, root: Path) -> dict[str, Path]:
    for domain in ("source", "target"):
        shutil.copytree(getattr(tiny, domain), root / domain)
    return {"source": root / "source", "target": root / "target"}


def run(tiny: TinyData, out: Path, **changes: Any) -> TrainResult:
    with Reporter(quiet=True) as reporter:
        result = train(tiny.job(out, **changes), reporter)
    assert result
    return result


def meanwhile(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """Let something happen as soon as the training begins."""
    whole = Runner.run

    def run_stage(self: Runner, *what: Any) -> RunState:
        change()
        return whole(self, *what)

    monkeypatch.setattr(Runner, "run", run_stage)


def test_a_few_lost_files_do_not_cost_a_training(
    tiny: TinyData, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = copied(tiny, tmp_path)
    first, second, third, *_, last = sorted(folders["target"].iterdir())
    in_source = folders["source"] / "blue_disc" / "7.png"

    def lose() -> None:
        first.unlink(missing_ok=True)
        second.write_bytes(third.read_bytes())  # another image under its name
        in_source.write_bytes(b"half")
        os.utime(last)  # touched: still the same image

    with monkeypatch.context() as patch:
        meanwhile(patch, lose)
        result = run(tiny, tmp_path / "run", **folders)
    assert result.rejected == 3
    rows = read_rejected(tmp_path / "run" / "rejected.csv")
    assert {row["path"] for row in rows} == {str(path) for path in (first, second, in_source)}
    assert {row["error_code"] for row in rows} == {"unreadable"}
    report = (tmp_path / "run" / "report.html").read_text()
    assert "vanished or changed while the run was under way" in report
    discovered = (tmp_path / "run" / "discovery.csv").read_bytes()
    assert discovered == (tiny_run / "discovery.csv").read_bytes()
    again = run(tiny, tmp_path / "run", resume=True, **folders)
    assert (again.rejected, again.manifest.id) == (3, result.manifest.id)


@pytest.mark.parametrize("domains", [("target",), ("source", "target")])
def test_a_whole_folder_that_vanishes_at_the_end(
    tiny: TinyData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, domains: Sequence[str]
) -> None:
    folders = copied(tiny, tmp_path)

    def lose() -> None:
        for domain in domains:
            shutil.rmtree(folders[domain], ignore_errors=True)

    with monkeypatch.context() as patch:
        meanwhile(patch, lose)
        if len(domains) == 2:
            with pytest.raises(DataError, match="no image can be read any more; bring the images"):
                run(tiny, tmp_path / "run", rounds=0, **folders)
            return
        assert run(tiny, tmp_path / "run", rounds=0, **folders).rejected == 100
    manifest = read_manifest(tmp_path / "run" / "bundle")
    assert [len(info.exemplars) for info in manifest.classes if info.kind == "discovered"] == [0]
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_killed_run_is_resumed_without_files_lost_meanwhile(
    tiny: TinyData, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop() -> None:
        raise Stopped

    folders, out = copied(tiny, tmp_path), tmp_path / "run"
    with monkeypatch.context() as patch:
        meanwhile(patch, stop)
        with pytest.raises(Stopped):
            run(tiny, out, **folders)
    first, second, *_ = sorted(folders["target"].iterdir())
    first.unlink()
    second.write_text("no image")
    (folders["source"] / "red_square" / "3.png").unlink()
    with pytest.raises(UsageError, match="cannot resume: source was"):  # the cache lacks them
        run(tiny, out, resume=True, cache=tmp_path / "empty", **folders)
    assert run(tiny, out, resume=True, **folders).rejected == 3
    assert (out / "discovery.csv").read_bytes() == (tiny_run / "discovery.csv").read_bytes()
    (folders["target"] / "new.png").write_bytes(picture("red"))
    with pytest.raises(UsageError, match="cannot resume: target was"):  # another target
        run(tiny, out, resume=True, **folders)


def extracted(root: Path, names: Iterable[str]) -> Extracted:
    rows = list(names)
    features = np.array([[float(ord(name[0]))] for name in rows], np.float32)
    stamps: list[Stamp | None] = [(1, 1) for _ in rows]
    return Extracted([root / n for n in rows], features, [f"digest-{n}" for n in rows], [], stamps)


def in_cache(digests: Sequence[str]) -> NDArray[np.float32] | None:
    return np.array([[float(ord(digest.removeprefix("digest-")[0]))] for digest in digests], "<f4")


@pytest.mark.parametrize(
    ("there", "lost"),
    [("abcdefghij", ""), ("bcdefghij", "a"), ("abcdefghi", "j"), ("aceg", "abcdh")],
)
def test_what_was_recorded_is_restored_or_is_another_folder(
    tmp_path: Path, there: str, lost: str
) -> None:
    recorded = {name: f"digest-{name}" for name in "abcdefghij"}
    found = extracted(tmp_path, there)
    restored = restore_lost(found, tmp_path, recorded, in_cache)
    if len(lost) != 1:
        assert restored is found
        return
    assert restored.features.tolist() == extracted(tmp_path, "abcdefghij").features.tolist()
    assert [stamp is None for stamp in restored.stamps] == [name == lost for name in recorded]
    assert [bad.path for bad in restored.rejected] == [tmp_path / lost]
    more = extracted(tmp_path, f"{there}x")
    assert restore_lost(more, tmp_path, recorded, in_cache) is more
    assert restore_lost(found, tmp_path, recorded, lambda digests: None) is found


@pytest.fixture
def images(tmp_path: Path) -> Images:
    paths = [tmp_path / name for name in ("a/0.jpg", "a/1.jpg", "a/deep/2.jpg", "b/3.jpg", "4.jpg")]
    for path, colour in zip(paths, ("red", "green", "blue", "cyan", "yellow"), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(colour))
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
    return Images(tmp_path, paths, digests, list(map(read_stamp, paths)))


def test_a_lost_image_gives_its_place_to_one_of_its_class(images: Images) -> None:
    assert images.lost() == []
    images.paths[1].unlink()
    images.paths[2].write_bytes(picture("yellow"))
    assert images.lost() == list(images.paths[1:3])
    first = images.read(0, IN_FULL)
    for row in (1, 2):  # the next of the class, which is the first again
        assert images.read_or_neighbour(row, IN_FULL).tobytes() == first.tobytes()
        with pytest.raises(ImageError):
            images.read(row, IN_FULL)
    images.paths[3].unlink()
    with pytest.raises(
        DataError, match=r"b/3\.jpg: vanished or changed while training, as did all"
    ):
        images.read_or_neighbour(3, IN_FULL)
    assert len(list(images.first_readable(range(5), EXEMPLARS, IN_FULL))) == 2


def test_the_images_of_a_run_are_read_as_they_were_written(images: Images, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b'b/\xe9, "x"\n.jpg')
    odd.write_bytes(b"x")
    both = Images(tmp_path, [*images.paths, odd], [*images.digests, "0" * 64])
    write_images(tmp_path / "images.csv", images, both)
    recorded = read_images(tmp_path / "images.csv")
    assert list(recorded.source) == images.names()
    assert list(recorded.target.items()) == list(zip(both.names(), both.digests, strict=True))
    assert read_images(tmp_path / "none.csv").target == {}
    (tmp_path / "images.csv").write_text("domain,path\nx,y\n")
    with pytest.raises(GateError, match=r"images\.csv: damaged"):
        read_images(tmp_path / "images.csv")


def test_a_changed_image_is_not_shown_in_the_report(images: Images) -> None:
    digests = dict(zip(images.names(), images.digests, strict=True))
    images.paths[0].write_bytes(picture("cyan"))
    made = make_thumbnails(
        images.root, images.names(), [], on_progress=lambda done, total: None, digests=digests
    )
    assert (sorted(made.urls), made.unreadable) == (sorted(images.names()[1:]), 1)


@pytest.fixture
def reviewed(tmp_path: Path) -> Path:
    """A bundle with a named class, whose target images are known by their digests."""
    bundle, target = make_bundle(tmp_path / "bundle"), tmp_path / "target"
    target.mkdir()
    names = [f"{number}.jpg" for number in range(5)]
    for name in names:
        (target / name).write_bytes(picture("yellow") + name.encode())
    digests = [hashlib.sha256((target / name).read_bytes()).hexdigest() for name in names]
    table = {"path": names, "class_id": ["discovered-000"] * 5, "confidence": [0.9] * 5}
    pq.write_table(pa.table({**table, "sha256": digests}), bundle / "neighbours.parquet")
    (bundle / "names.json").write_text('{"version": 1, "labels": {"discovered-000": "lemon"}}')
    return bundle


def test_only_the_image_that_was_reviewed_is_promoted(reviewed: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    (target / "0.jpg").write_bytes(picture("cyan"))  # another image
    (target / "1.jpg").write_bytes(b"")  # emptied
    (target / "2.jpg").unlink()
    (target / "2.jpg").symlink_to("3.jpg")  # a link to another one
    (target / "4.jpg").unlink()
    promotion = promote(reviewed, tmp_path / "out", target=target)
    assert (promotion.changed, promotion.missing, promotion.counts) == (3, 1, {"lemon": 1})
    assert [path.name for path in (tmp_path / "out" / "lemon").iterdir()] == ["3.jpg"]
    assert "       3  left out: the file has changed since the training" in promotion.lines()
    (target / "3.jpg").write_bytes(b"")
    with pytest.raises(DataError, match="0 of these have the content that they had"):
        promote(reviewed, tmp_path / "none", target=target)


def test_a_changed_image_is_not_shown_for_review(reviewed: Path, tmp_path: Path) -> None:
    shown = open_target_images(
        reviewed, read_manifest(reviewed, checked=False), tmp_path / "target"
    )
    assert shown.thumbnail(0)
    (tmp_path / "target" / "0.jpg").write_bytes(picture("cyan"))
    with pytest.raises(ImageError, match="the file has changed since the training"):
        shown.thumbnail(0)
