"""No output is written into the images, over an input, over a link or over a file of a run."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scda.adapt.data.job import check_job
from scda.adapt.runs.folder import RunFolder
from scda.models.bundle import checksums
from scda.models.errors import UsageError
from scda.models.places import RUN_FILES, check_outside, check_replaceable
from scda.models.predictor import Predictor, load_predictor
from scda.serve.labelling.label import check_places, label
from scda.serve.labelling.outputs import Options
from scda.serve.labelling.ray.validation import check_output, check_summary
from scda.serve.labelling.sources import FileSelection
from scda.serve.review.promote import promote
from tests.bundles import make_bundle, picture
from tests.conftest import TinyData


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a bundle, and beside it images and a link to them."""
    folder = tmp_path / "run"
    folder.mkdir()
    make_bundle(folder / "bundle", targets={"a.jpg": "red"})
    (folder / "config.json").write_text('{"config": {}, "data": {}}')
    (folder / "bundle" / "names.json").write_text('{"version": 0}')
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(picture("red"))
    (tmp_path / "photos" / "list.csv").write_text("a.jpg\n")
    (tmp_path / "precious.csv").write_text("years of work")
    (tmp_path / "link.csv").symlink_to("precious.csv")
    (tmp_path / "gone.csv").symlink_to("nowhere.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    return folder


@pytest.fixture
def predictor(run: Path) -> Predictor:
    return load_predictor(run / "bundle", provider="cpu", threads=1)


BAD_FILES = {
    "run/bundle/names.csv": "inside the bundle",
    "run/bundle/exemplars/new.csv": "inside the bundle",
    "run/discovery.csv": "discovery.csv is a part of the run",
    "run/rejected.csv": "rejected.csv is a part of the run",
    "run/tensorboard/rows.csv": "no folder",
    "photos/list.csv": "exists and is not the output of an earlier call",
    "precious.csv": "exists and is not the output of an earlier call",
    "link.csv": "is a link",
    "gone.csv": "is a link",
    "pipe.csv": "is no regular file",
}


@pytest.mark.parametrize(("name", "message"), BAD_FILES.items())
@pytest.mark.parametrize("option", ["out", "summary", "embeddings"])
def test_no_file_is_lost_to_an_output(
    predictor: Predictor, tmp_path: Path, name: str, message: str, option: str
) -> None:
    before = contents(tmp_path)
    out = tmp_path / name
    outs, options = [str(out)], Options()
    if option == "summary":
        outs, options = ["-"], Options(summary=out)
    if option == "embeddings":
        out = out.with_suffix(".npy")
        if (tmp_path / name).is_symlink() or (tmp_path / name).exists():
            (tmp_path / name).rename(out)
            before = contents(tmp_path)
        message = message.replace(Path(name).name, out.name)
        if "is a part of" in message:  # no file of a run has this ending
            return
        outs, options = [], Options(embeddings=out)
    with pytest.raises(UsageError, match=message):
        label(predictor, [tmp_path / "photos"], outs, options=options)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["bundle/names.json", "config.json", "bundle/bundle.json"])
def test_a_summary_never_replaces_names_or_config(
    predictor: Predictor, run: Path, tmp_path: Path, name: str
) -> None:
    before = checksums(tmp_path)
    for summary in (run / name, run / "bundle" / ".." / name):
        with pytest.raises(UsageError, match=r"inside the bundle|is a part of the run"):
            label(predictor, [tmp_path / "photos"], ["-"], options=Options(summary=summary))
        with pytest.raises(UsageError, match=r"inside the bundle|is a part of the run"):
            check_summary(summary)
    assert checksums(tmp_path) == before


def test_the_list_of_files_is_no_output(predictor: Predictor, tmp_path: Path) -> None:
    listed = tmp_path / "list.csv"
    listed.write_bytes(b"path,status,\n")  # begins as an earlier output does
    for name in (listed, tmp_path / "photos" / ".." / "list.csv"):
        with pytest.raises(UsageError, match="an output would replace the list of files"):
            label(predictor, [], [str(name)], files_from=str(listed))


def test_a_table_of_another_program_is_no_earlier_output(
    predictor: Predictor, run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"customer": ["years of work"]}), out)
    before = out.read_bytes()
    with pytest.raises(UsageError, match="not the output of an earlier call"):
        label(predictor, [tmp_path / "photos"], [str(out)])
    assert out.read_bytes() == before
    out.unlink()
    for _ in range(2):
        label(predictor, [tmp_path / "photos"], [str(out)])


def test_earlier_outputs_are_replaced(predictor: Predictor, run: Path, tmp_path: Path) -> None:
    out, summary = run / "labels.csv", run / "summary.json"
    out.touch()
    for _ in range(2):
        label(predictor, [tmp_path / "photos"], [str(out)], options=Options(summary=summary))
    assert out.read_text().count("\n") == 3


PLACES: dict[str, str] = {
    "source": "inside .*source",
    "source/new": "inside .*source",
    "source/blue_disc/new": "inside .*source",
    "target/deep/new": "inside .*target",
    "link/new": "inside .*target",
    "source/../target/new": "inside .*target",
    "elsewhere/new": "inside .*source",  # a class folder may be a link
    "run/bundle": "inside the bundle",
    "run/bundle/new": "inside the bundle",
    "run/checkpoints/new": "checkpoints is a part of the run",
}


@pytest.fixture
def images(tmp_path: Path, run: Path) -> Path:
    for name in ("source/blue_disc", "target/deep", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "source" / "linked").symlink_to(tmp_path / "elsewhere")
    return tmp_path


def promoted(root: Path, place: Path) -> None:
    promote(root / "run" / "bundle", place, target=root / "target", source=root / "source")


def sorted_into(root: Path, place: Path) -> None:
    predictor = load_predictor(root / "run" / "bundle", provider="cpu", threads=1)
    run = {"source": str(root / "source"), "target": str(root / "target")}
    predictor.manifest.run.update(run)
    label(predictor, [root / "photos"], [], options=Options(sort_into=place))


def trained(root: Path, place: Path) -> None:
    data = TinyData(root)
    check_job(data.job(place, cache=root / "cache"))


def cached(root: Path, place: Path) -> None:
    check_job(TinyData(root).job(root / "new-run", cache=place))


@pytest.mark.parametrize(("name", "message"), PLACES.items())
@pytest.mark.parametrize("write", [promoted, sorted_into, trained, cached])
def test_no_folder_is_written_where_the_next_training_reads(
    images: Path, name: str, message: str, write: Callable[[Path, Path], None]
) -> None:
    before = contents(images)
    if write is promoted:  # the folders of the training count, even where others are given
        name_classes(images)
        before = contents(images)
    with pytest.raises(UsageError, match=message):
        write(images, images / name)
    assert contents(images) == before


def name_classes(root: Path) -> None:
    (root / "run" / "bundle" / "names.json").write_text(
        '{"version": 1, "labels": {"discovered-000": "new"}}'
    )


def test_a_cluster_writes_no_rows_into_a_bundle(run: Path) -> None:
    for out in (run / "bundle" / "rows", run / "checkpoints"):
        with pytest.raises(UsageError, match=r"inside the bundle|is a part of the run"):
            check_output([str(out)], [])


def test_every_part_of_a_run_is_known(run: Path) -> None:
    folder = RunFolder(run)
    of_a_run = {
        value.name
        for name in vars(RunFolder)
        if isinstance(value := getattr(folder, name), Path) and value != run
    }
    assert of_a_run == set(RUN_FILES)


def test_a_project_with_a_config_of_its_own_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"name": "thesis"}')
    check_outside(tmp_path / "bundle", [])
    check_replaceable(tmp_path / "rejected.csv", {b"x": b""})


def contents(root: Path) -> dict[str, Any]:
    """Return what every name under a folder is, links and pipes included."""
    return {
        str(path.relative_to(root)): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else path.is_dir()
        for path in root.rglob("*")
    }


def test_a_device_is_never_replaced(predictor: Predictor, tmp_path: Path) -> None:
    summary = tmp_path / "null"
    if os.geteuid():
        pytest.skip("only root can make a device")
    try:
        os.mknod(summary, 0o666 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this container makes no devices")
    with pytest.raises(UsageError, match="is no regular file"):
        label(predictor, [tmp_path / "photos"], ["-"], options=Options(summary=summary))


def test_a_bundle_json_of_another_program_refuses_nothing(tmp_path: Path) -> None:
    for text in ("{}", '{"version": 1}', "[]", "not JSON", '{"id": "x", "classes": []}'):
        (tmp_path / "bundle.json").write_text(text)
        check_outside(tmp_path / "app" / "sorted", [])
        check_replaceable(tmp_path / "labels.csv", {b"path": b""})


@pytest.mark.parametrize("text", [None, "cut off {"])
def test_a_bundle_is_one_also_when_it_is_damaged(
    run: Path, tmp_path: Path, text: str | None
) -> None:
    if text:
        (run / "bundle" / "bundle.json").write_text(text)
    with pytest.raises(UsageError, match="inside the bundle"):
        check_outside(run / "bundle" / "sorted", [])


@pytest.mark.parametrize("link", ["photos/link", "photos/deep/er/link"])
@pytest.mark.parametrize("below", ["", "further/link"])
def test_nothing_is_sorted_into_what_is_read_through_a_link(
    predictor: Predictor, tmp_path: Path, link: str, below: str
) -> None:
    first, last = tmp_path / "first", tmp_path / "last"
    for folder in (first, last, (tmp_path / link).parent):
        folder.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(first)
    (last / "back").symlink_to(tmp_path / "photos")  # leads in a circle
    if below:
        (first / below).parent.mkdir()
        (first / below).symlink_to(last)
    place = (last if below else first) / "sorted"
    options, selection = Options(sort_into=place), FileSelection(follow_links=True)
    with pytest.raises(UsageError, match=f"{place}: inside .*; expected a folder outside"):
        label(predictor, [tmp_path / "photos"], [], options=options, selection=selection)
    with pytest.raises(UsageError, match=f"{place}: inside .*; expected a folder outside"):
        check_places([tmp_path / "photos"], [], options, selection, None)
    assert not place.exists()
    label(predictor, [tmp_path / "photos"], [], options=options)  # without following links
