import csv
import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scda.adapt.data.dataset import plan
from scda.adapt.data.job import Job
from scda.adapt.pipeline.run import train
from scda.adapt.runs.folder import RunFolder, clear
from scda.adapt.runtime.progress import Reporter
from scda.adapt.training.losses import class_confusion
from scda.adapt.training.runner import Runner
from scda.adapt.training.state import RunState
from scda.models.bundle import Manifest, checksums, read_manifest
from scda.models.errors import DataError, GateError, UsageError
from tests.conftest import HIDDEN, KNOWN, TinyData
from tests.nasty import nasty_files

pytestmark = pytest.mark.usefixtures("no_figures")


def run(job: Job) -> Manifest:
    with Reporter(quiet=True) as reporter:
        trained = train(job, reporter)
    assert trained
    return trained.manifest


def test_a_run_leaves_everything_the_contract_names(tiny_run: Path) -> None:
    manifest = read_manifest(tiny_run / "bundle")
    assert [info.label for info in manifest.classes[:3]] == sorted(KNOWN)
    assert manifest.class_ids[3:] == [
        f"discovered-{i:03d}" for i in range(len(manifest.class_ids) - 3)
    ]
    sizes = [info.size for info in manifest.classes if info.kind == "discovered"]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(info.size for info in manifest.classes) == 100
    assert [info.trust is None for info in manifest.classes] == [
        info.kind == "known" for info in manifest.classes
    ]
    config = json.loads((tiny_run / "config.json").read_text())
    assert config["config"]["seed"] == 0
    rounds = [json.loads(line) for line in (tiny_run / "metrics.jsonl").read_text().splitlines()]
    assert [r["round"] for r in rounds if "round" in r] == [0, 1, 2]
    assert len(list((tiny_run / "checkpoints").iterdir())) == 2
    assert "<img" in (tiny_run / "report.html").read_text()


def test_the_discovery_table_has_one_row_per_target_image(tiny: TinyData, tiny_run: Path) -> None:
    with (tiny_run / "discovery.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["path"] for row in rows) == sorted(p.name for p in tiny.target.iterdir())
    ids = set(read_manifest(tiny_run / "bundle").class_ids)
    assert {row["cluster"] for row in rows} <= ids
    assert {row["pseudo_label"] for row in rows} <= ids | {""}


@pytest.mark.usefixtures("exporter")
def test_the_same_seed_gives_the_same_bundle(
    tiny: TinyData, tiny_run: Path, tmp_path: Path
) -> None:
    # With an empty cache: a feature computed now and one kept from then are the same.
    again = run(tiny.job(tmp_path / "again", cache=tmp_path / "cache"))
    assert again.files == read_manifest(tiny_run / "bundle").files
    assert again.id == read_manifest(tiny_run / "bundle").id


def test_names_and_bad_files_of_the_target_play_no_part(
    tiny: TinyData, tiny_run: Path, tmp_path: Path
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(tiny.source, source)
    (source / "aaa_empty").mkdir()
    (source / "bbb_text").mkdir()
    (source / "bbb_text" / "notes.jpg").write_text("no image")
    # Folder names that contradict the truth, in an order that keeps the images' own.
    for number, path in enumerate(sorted(tiny.target.iterdir())):
        folder = target / f"{number:03d}-{list(KNOWN)[number % 3]}"
        folder.mkdir(parents=True)
        shutil.copy(path, folder / path.name)
    shutil.move(folder / path.name, folder / f"9{os.fsdecode(bytes([0xE9]))}.png")  # not UTF-8
    bad = {name: nasty for name, nasty in nasty_files().items() if nasty.code != "ok"}
    for name, nasty in bad.items():
        (target / f"zz-{name}").write_bytes(nasty.data)
    manifest = run(tiny.job(tmp_path / "run", source=source, target=target))
    original = read_manifest(tiny_run / "bundle")
    assert manifest.classes == original.classes
    differing = {n for n, digest in manifest.files.items() if original.files[n] != digest}
    assert differing == {"neighbours.parquet"}  # it holds the paths
    assert b"/9\xe9.png," in (tmp_path / "run" / "discovery.csv").read_bytes()
    with (tmp_path / "run" / "rejected.csv").open() as file:
        codes = {Path(row["path"]).name: row["error_code"] for row in csv.DictReader(file)}
    assert codes == {
        "notes.jpg": "not_an_image",
        **{f"zz-{name}": nasty.code for name, nasty in bad.items()},
    }


@pytest.fixture(scope="module")
def without_rounds(tiny: TinyData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "without_rounds"
    run(tiny.job(out, tensorboard=True, rounds=0))
    return out


def test_a_run_without_rounds_still_gives_a_bundle(without_rounds: Path) -> None:
    manifest = read_manifest(without_rounds / "bundle")
    assert manifest.class_ids[3:] == ["discovered-000"]  # the one pool of unknown images


def test_another_seed_gives_another_bundle(
    tiny: TinyData, without_rounds: Path, tmp_path: Path
) -> None:
    other = run(tiny.job(tmp_path / "run", seed=1, rounds=0))
    original = read_manifest(without_rounds / "bundle")
    assert other.id != original.id
    assert other.files["model.onnx"] != original.files["model.onnx"]


def test_no_path_of_this_machine_is_in_the_bundle(tiny: TinyData, tiny_run: Path) -> None:
    secrets = [str(tiny.root), str(tiny_run), str(Path(__file__).parents[3])]
    for name in checksums(tiny_run / "bundle"):
        content = (tiny_run / "bundle" / name).read_bytes()
        assert not [secret for secret in secrets if secret.encode() in content], name
    fields = json.loads((tiny_run / "bundle" / "bundle.json").read_text())
    del fields["run"]
    assert not [secret for secret in secrets if secret in json.dumps(fields)]


def test_a_run_stopped_after_its_first_round_goes_on_to_the_same_bundle(
    tiny: TinyData, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those stopped earlier and later are in test_kill.py."""

    class Stopped(BaseException):
        pass

    whole = Runner.run

    def run_stage(self: Runner, *what: Any) -> RunState:
        state = whole(self, *what)
        if state.stage == 1:
            raise Stopped
        return state

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "run", run_stage)
        with pytest.raises(Stopped):
            run(tiny.job(tmp_path / "run"))
    resumed = run(tiny.job(tmp_path / "run", resume=True))
    assert resumed.id == read_manifest(tiny_run / "bundle").id
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(li)["round"] for li in lines if "round" in li] == [0, 1, 2]


def test_resuming_with_another_config_is_refused(
    tiny: TinyData, tiny_run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(tiny_run, copy)
    shutil.rmtree(copy / "bundle")
    with pytest.raises(UsageError, match=r"cannot resume: lr was 0\.001, is 0\.002"):
        run(tiny.job(copy, resume=True, lr=0.002))


def test_everything_that_differs_is_named_at_once(
    tiny: TinyData, tiny_run: Path, tmp_path: Path
) -> None:
    copy, source = tmp_path / "run", tmp_path / "source"
    shutil.copytree(tiny_run, copy)
    shutil.rmtree(copy / "bundle")
    shutil.copytree(tiny.source, source)
    (source / "blue_disc").rename(source / "azure_disc")
    with pytest.raises(UsageError) as refused:
        run(tiny.job(copy, resume=True, source=source, batch_size=8))
    said = str(refused.value)
    assert "batch_size was 16, is 8; classes was ['blue_disc', " in said
    assert "is ['azure_disc', 'green_bar', 'red_square']; source was '60 images with " in said
    assert said.endswith("use the same values, or --overwrite to start again")
    assert "target was" not in said


def test_a_run_that_diverges_leaves_the_bundle_of_the_last_good_round(
    tiny: TinyData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(1, 999))

    def loses_round_2(correlation: Tensor, **options: Any) -> Tensor:
        loss = class_confusion(correlation, **options)
        return loss if next(calls) <= 2 * 20 + 10 else loss * torch.nan

    monkeypatch.setattr("scda.adapt.training.loop.class_confusion", loses_round_2)
    job = tiny.job(tmp_path / "run", pretrain_steps=20, round_steps=10)
    with pytest.raises(GateError, match=r"round 2: training diverged at step 3; .* of round 1$"):
        run(job)
    left = read_manifest(job.out / "bundle")
    assert left.status[0] == "diverged"
    assert "diverged" in (job.out / "report.html").read_text()
    with pytest.raises(GateError, match="round 2: training diverged"):  # not a success later on
        run(replace(job, resume=True))


def test_event_files_are_written_where_asked_for(
    tiny_run: Path, without_rounds: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(without_rounds, tmp_path / "run")
    assert len(list((copy / "tensorboard").glob("events.out.tfevents.*"))) == 1
    clear(RunFolder(copy))
    assert not (copy / "tensorboard").exists()
    assert not (tiny_run / "tensorboard").exists()


def test_what_a_kill_left_half_written_is_swept(
    tiny: TinyData, tiny_run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(tiny_run, copy)
    (copy / "report.html").unlink()
    (copy / ".draft.abc").mkdir()
    (copy / ".bundle.abc").mkdir()
    for name in (".draft.abc/model.onnx", ".bundle.abc/model.onnx", ".mine"):
        (copy / name).write_text("half")
    for name in (".scda-report.html.abcd1234", ".scda-config.json.abcd1234.lock"):
        (copy / name).write_text("half")
    run(tiny.job(copy, resume=True))
    assert [path.name for path in copy.glob(".*")] == [".mine"]


def test_resuming_with_another_target_is_refused(
    tiny: TinyData, tiny_run: Path, tmp_path: Path
) -> None:
    copy, target = tmp_path / "run", tmp_path / "target"
    shutil.copytree(tiny_run, copy)
    shutil.rmtree(copy / "bundle")
    shutil.copytree(tiny.target, target)
    next(target.iterdir()).unlink()
    with pytest.raises(UsageError, match="cannot resume: target was"):
        run(tiny.job(copy, resume=True, target=target))


def test_resuming_a_finished_run_checks_it_and_changes_nothing(
    tiny: TinyData, tiny_run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(tiny_run, copy)
    assert run(tiny.job(copy, resume=True)).id == read_manifest(tiny_run / "bundle").id
    (copy / "bundle" / "model.onnx").write_bytes(b"")
    with pytest.raises(GateError, match="damaged"):
        run(tiny.job(copy, resume=True))


def test_a_run_that_is_there_is_not_touched(tiny: TinyData, tiny_run: Path) -> None:
    before = (tiny_run / "config.json").stat().st_mtime_ns
    with pytest.raises(UsageError, match="use --resume to continue or --overwrite to start again"):
        run(tiny.job(tiny_run))
    assert (tiny_run / "config.json").stat().st_mtime_ns == before


def test_overwrite_never_removes_what_is_no_run(tiny: TinyData, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "config.json").write_text('{"name": "thesis"}')
    with pytest.raises(UsageError, match="holds files that are not a run"):
        run(tiny.job(tmp_path, overwrite=True))
    assert (tmp_path / "thesis.tex").exists()


def test_a_class_like_a_discovered_one_and_no_neighbours(
    tiny: TinyData, tiny_run: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(tiny.source, source)
    (source / "red_square").rename(source / "discovered-000")
    short = {"rounds": 0, "backbone_statistics": "pretrained"}
    manifest = run(tiny.job(tmp_path / "run", source=source, neighbours=False, **short))
    assert [info.label for info in manifest.classes].count("discovered-000") == 2
    assert len(set(manifest.class_ids)) == len(manifest.class_ids)

    def with_paths(files: Iterable[str]) -> list[str]:
        return [name for name in files if name.startswith("neighbours")]

    assert with_paths(read_manifest(tiny_run / "bundle").files)
    assert not with_paths(manifest.files)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda root: root / "missing", UsageError, "the source folder does not exist"),
        (lambda root: root, DataError, "no class folder found"),
        (lambda root: _tree(root, {"a/1.jpg": b"no image"}), DataError, "no class folder holds"),
        (
            lambda root: _tree(root, {"a/1.png": b"", "b/.x": b""}),
            DataError,
            "no class folder holds",
        ),
    ],
)
def test_a_source_that_cannot_be_used_is_refused(
    tiny: TinyData,
    tmp_path: Path,
    make: Callable[[Path], Path],
    error: type[Exception],
    message: str,
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    job = tiny.job(tmp_path / "run", source=make(source))
    with pytest.raises(error, match=message):
        run(job)
    assert not (tmp_path / "run" / "bundle").exists()


def test_one_class_is_not_enough(tiny: TinyData, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(tiny.source / "red_square", source / "red_square")
    with pytest.raises(DataError, match="found images of one class, red_square"):
        run(tiny.job(tmp_path / "run", source=source))


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({}, DataError, "no file found"),
        ({"notes.jpg": b"no image"}, DataError, "0 readable target images"),
    ],
)
def test_a_target_without_images_is_refused(
    tiny: TinyData, tmp_path: Path, files: dict[str, bytes], error: type[Exception], message: str
) -> None:
    target = _tree(tmp_path / "target", files)
    with pytest.raises(error, match=message):
        run(tiny.job(tmp_path / "run", target=target))


def test_a_plan_changes_nothing(tiny: TinyData, tmp_path: Path) -> None:
    planned = plan(tiny.job(tmp_path / "run"))
    assert planned["source blue_disc"] == "20 images"
    assert planned["target"] == f"{20 * len({**KNOWN, **HIDDEN})} images"
    assert planned["rejected"] == "0 files"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("inside", ["source", "target"])
def test_a_run_among_the_images_is_refused(tiny: TinyData, inside: str) -> None:
    with pytest.raises(UsageError, match="expected a folder outside the images"):
        run(tiny.job(tiny.root / inside / "run"))


def test_a_killed_pre_training_starts_again_without_its_lines(
    tiny: TinyData, tiny_run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(tiny_run, copy)
    for name in ("bundle", "checkpoints"):
        shutil.rmtree(copy / name)
    (copy / "metrics.jsonl").write_text('{"during": 0, "step": 50, "losses": {}}\n{"cut": {}')
    run(tiny.job(copy, resume=True))
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    assert [line["during"] for line in lines if "during" in line] == [0]


def test_a_named_device_that_cannot_be_had_is_refused(tiny: TinyData, tmp_path: Path) -> None:
    job = tiny.job(tmp_path / "run")
    with pytest.raises(UsageError, match="device is cuda, but torch finds no GPU"):
        run(replace(job, config=replace(job.config, device="cuda")))


def _tree(root: Path, files: dict[str, bytes]) -> Path:
    root.mkdir(exist_ok=True)
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root
