import json
import shutil
from pathlib import Path

from scda.adapt.cli.review import picker
from scda.adapt.picking.pick import pick
from scda.adapt.runs.folder import RunFolder
from scda.adapt.runs.images_table import read_images
from tests.bundles import make_bundle
from tests.conftest import Scda, TinyData


def test_pick_prints_images_of_the_target(tiny: TinyData, tiny_run: Path, scda: Scda) -> None:
    done = scda("pick", tiny_run, "--n", "5")
    assert done.returncode == 0, done.stderr
    paths = [Path(line) for line in done.stdout.splitlines()]
    assert len(set(paths)) == 5
    assert all(path.is_file() and path.is_relative_to(tiny.target) for path in paths)
    assert scda("pick", tiny_run, "--n", "5").stdout == done.stdout


def test_images_that_have_a_label_are_not_picked(
    tiny_run: Path, tmp_path: Path, scda: Scda
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    before, table = pick(run, 5), RunFolder(run).images
    digests = read_images(table).target
    with table.open("a") as file:
        file.writelines(f"source,disc/{path},{digests[path]}\n" for path in before)
    after = pick(run, 5)
    assert len(after) == 5
    assert set(before).isdisjoint(after)
    with table.open("a") as file:
        file.writelines(f"source,disc/{path},{digest}\n" for path, digest in digests.items())
    done = scda("pick", run)
    assert (done.returncode, done.stdout) == (0, "")
    assert "every target image has a label" in done.stderr


def test_pick_writes_tables_and_folders(
    tiny: TinyData, tiny_run: Path, tmp_path: Path, scda: Scda
) -> None:
    outs = [tmp_path / name for name in ("picked.labelstudio.json", "picked.fiftyone.json")]
    words = ("--out", outs[0], "--out", outs[1], "--sort-into", tmp_path / "sorted")
    done = scda("pick", tiny_run, "--n", "4", "--target", tiny.target, *words)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(outs[0].read_text())) == 4
    assert len(json.loads(outs[1].read_text())["labels"]) == 4
    copied = [path for path in (tmp_path / "sorted").rglob("*") if path.is_file()]
    assert len(copied) == 5  # with the manifest


def test_the_review_of_a_run_picks_the_same_images(
    tiny: TinyData, tiny_run: Path, tmp_path: Path, scda: Scda
) -> None:
    choose = picker(tiny_run / "bundle", 3)
    assert choose
    printed = scda("pick", tiny_run, "--n", "3").stdout.split()
    assert [str(tiny.target / path) for path in choose()] == printed
    assert picker(make_bundle(tmp_path / "bundle"), 3) is None


def test_pick_needs_a_run_its_features_and_the_target(
    tiny_run: Path, tmp_path: Path, scda: Scda
) -> None:
    done = scda("pick", tiny_run, "--target", tmp_path / "gone")
    assert (done.returncode, "does not exist" in done.stderr) == (2, True)
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    (run / "bundle" / "neighbours.faiss").unlink()
    done = scda("pick", run)
    assert (done.returncode, "--no-neighbours" in done.stderr) == (2, True), done.stderr
    assert scda("pick", tmp_path).returncode == 2
