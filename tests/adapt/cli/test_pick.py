import json
import shutil
from pathlib import Path

from scda.adapt.cli.review import picker
from tests.bundles import make_bundle
from tests.conftest import Scda, TinyData


def test_pick_prints_images_of_the_target(tiny: TinyData, tiny_run: Path, scda: Scda) -> None:
    done = scda("pick", tiny_run, "--n", "5")
    assert done.returncode == 0, done.stderr
    paths = [Path(line) for line in done.stdout.splitlines()]
    assert len(set(paths)) == 5
    assert all(path.is_file() and path.is_relative_to(tiny.target) for path in paths)
    assert scda("pick", tiny_run, "--n", "5").stdout == done.stdout


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
