"""Copies of images are told before training, also in a dry run."""

import json
import shutil
from pathlib import Path

import pytest

from scda.adapt.cli.train import _print_plan
from scda.adapt.data.copies import Hashed, copy_hints
from scda.adapt.data.dataset import plan
from scda.adapt.pipeline.run import train
from scda.adapt.runtime.progress import Reporter
from tests.conftest import Scda, TinyData


def hashed(*images: str, labels: str = "") -> Hashed:
    """One image per word: its name and its content, as in `a=1`."""
    pairs = [image.split("=") for image in images]
    return Hashed(
        [Path(name) for name, _ in pairs], [digest for _, digest in pairs], labels.split()
    )


NOTHING = hashed()


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        (("x=1", "y=9"), "1 target images are in the source, too: x;"),
        (("x=1", "y=1", "z=2"), "3 target images are in the source, too: x, y, z;"),
        (
            ("v=1", "w=1", "x=1", "y=2"),
            "4 target images are in the source, too: v, w, x and 1 more;",
        ),
    ],
)
def test_images_of_both_domains_are_told(target: tuple[str, ...], hint: str) -> None:
    (told,) = copy_hints(hashed("a=1", "b=2", labels="cat dog"), hashed(*target))
    assert told.startswith(hint)
    assert "remove them from one of the folders" in told


@pytest.mark.parametrize(
    ("source", "labels", "hint"),
    [
        (("a=1", "b=1"), "cat dog", "1 source images are in more than one class: a, b;"),
        (
            ("a=1", "b=1", "c=1"),
            "cat dog cow",
            "1 source images are in more than one class: a, b, c",
        ),
        (
            ("a=1", "b=2", "c=1", "d=2"),
            "x x y y",
            "2 source images are in more than one class: a, b",
        ),
    ],
)
def test_images_of_two_classes_are_told(source: tuple[str, ...], labels: str, hint: str) -> None:
    (told,) = copy_hints(hashed(*source, labels=labels), NOTHING)
    assert told.startswith(hint)


@pytest.mark.parametrize(
    ("copies", "others", "is_told"),
    [(11, 0, True), (10, 500, False), (11, 500, True), (30, 5_000, False), (101, 90_000, True)],
)
def test_many_copies_are_told(copies: int, others: int, is_told: bool) -> None:
    images = [f"copy{i}=c" for i in range(copies)] + [f"x{i}={i}" for i in range(others)]
    hints = copy_hints(NOTHING, hashed(*images))
    assert len(hints) == is_told
    if is_told:
        assert (
            f"{copies - 1} of {len(images)} target images are copies of others: copy0" in hints[0]
        )


def test_a_few_copies_within_a_class_are_no_matter() -> None:
    assert copy_hints(hashed("a=1", "b=1", "c=2", labels="x x y"), hashed("d=3", "e=3")) == []


@pytest.fixture
def copied(tiny: TinyData, tmp_path: Path) -> dict[str, Path]:
    """Both domains: one source image in a second class and in the target, a dozen copies of one."""
    folders = {domain: tmp_path / domain for domain in ("source", "target")}
    for domain, folder in folders.items():
        shutil.copytree(getattr(tiny, domain), folder)
    image = folders["source"] / "red_square" / "0.png"
    shutil.copy(image, folders["source"] / "blue_disc" / "wrong.png")
    shutil.copy(image, folders["target"] / "known.png")
    first = next(folders["target"].glob("0*.png"))
    for number in range(12):
        shutil.copy(first, folders["target"] / f"copy-{number}.png")
    return folders


def test_a_dry_run_and_a_run_tell_the_same(
    tiny: TinyData, copied: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = {"rounds": 0, "backbone_statistics": "pretrained"}
    job = tiny.job(tmp_path / "run", **short, **copied)
    planned = plan(job)
    hints = planned["warnings"]
    assert [hint.split(":")[0] for hint in hints] == [
        "1 target images are in the source, too",
        "1 source images are in more than one class",
        "12 of 113 target images are copies of others",
    ]
    _print_plan(planned | {"warnings": list(hints)}, as_json=True)
    assert json.loads(capsys.readouterr().out)["warnings"] == hints
    _print_plan(planned, as_json=False)
    said = capsys.readouterr()
    assert said.err.splitlines() == [f"warning: {hint}" for hint in hints]
    assert "warnings" not in said.out
    with Reporter() as reporter:
        train(job, reporter)
    warned = capsys.readouterr().err
    assert all(f"warning: {hint}" in warned for hint in hints)


def test_a_dry_run_checks_the_folder_of_the_run(scda: Scda, tiny: TinyData, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    words = ("train", "--source", tiny.source, "--target", tiny.target, "--dry-run", "--out")
    for out, message in {
        tmp_path: "holds files that are not a run",
        tmp_path / "thesis.tex": "is a file; expected a folder",
        tmp_path / "thesis.tex" / "run": "cannot create the folder",
        tiny.target / "run": "expected a folder outside the images",
    }.items():
        done = scda(*words, out)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
