import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from scda.models.bundle import read_manifest
from scda.models.trust import ClassTrust, Doubt
from tests.bundles import make_bundle, picture
from tests.conftest import Done, Scda, TinyData

COMMANDS = (
    "train",
    "label",
    "serve",
    "audit",
    "evaluate",
    "drift",
    "review",
    "names",
    "promote",
    "pick",
    "inspect",
    "report",
    "doctor",
    "demo",
)


def refused(done: Done, code: int, message: str) -> None:
    """One line on stderr that holds `message`, and the exit code."""
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert message in done.stderr


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("made") / "bundle")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.jpg").write_bytes(picture("red"))
    (folder / "sub" / "b.jpg").write_bytes(picture("yellow"))
    return folder


def test_help_lists_every_command(scda: Scda) -> None:
    done = scda("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in COMMANDS)


def test_help_works_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; from scda.adapt.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "train" in done.stdout


def test_training_without_the_extra_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from scda.adapt.cli.main import main; main()"
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
    places = ("--source", tmp_path / "x", "--target", tmp_path / "y", "--out", tmp_path / "z")
    words = [sys.executable, "-c", code, "train", *map(str, places)]
    refused(subprocess.run(words, capture_output=True, text=True), 2, "pip install 'scda[train]'")


def test_a_whole_run_from_the_command_line(scda: Scda, tiny: TinyData, tmp_path: Path) -> None:
    options = tmp_path / "options.toml"
    short = "pretrain_steps = 40\nround_steps = 20\nbatch_size = 16\n"
    options.write_text(f'backbone = "conv4"\nweights = "{tiny.weights}"\n{short}')
    run, place = tmp_path / "run", ("--source", tiny.source, "--target", tiny.target)
    settings = ("--config", options, "--rounds", 1, "--k", 2, "--novel", "yes")
    done = scda("train", *place, "--out", run, *settings, "--cache", tiny.cache, "--json")
    assert done.returncode == 0, done.stderr
    manifest = read_manifest(run / "bundle")
    expected = {"bundle": str(run / "bundle"), "id": manifest.id, "k_star": 2}
    assert json.loads(done.stdout) == expected

    measured = scda("evaluate", run, tiny.labelled, "--json")
    assert measured.returncode == 0, measured.stderr
    fields = json.loads(measured.stdout)
    assert fields["bundle_id"] == manifest.id
    assert fields["k_star"] == fields["k_true"] == 2
    assert {"os", "os_star", "unk_pooled", "hos", "acc_joint", "acc_novel", "h3_model"} <= set(
        fields
    )

    assert "verified" in scda("inspect", run, "--verify").stderr
    (run / "report.html").unlink()
    assert scda("report", run).stdout.strip() == str(run / "report.html")
    again = scda("report", run, "--labelled", tiny.labelled, "--quiet")
    assert (again.returncode, again.stderr) == (0, "")
    assert "Measured on labelled images" in (run / "report.html").read_text()
    again = scda("train", *place, "--out", run, *settings, "--cache", tiny.cache, "--resume")
    assert (again.returncode, "this run is finished" in again.stderr) == (0, True)


def test_a_dry_run_prints_the_plan(scda: Scda, tiny: TinyData, tmp_path: Path) -> None:
    place = ("--source", tiny.source, "--target", tiny.target, "--out", tmp_path / "run")
    done = scda("train", *place, "--dry-run")
    assert done.returncode == 0
    assert "source blue_disc" in done.stdout
    assert "100 images" in done.stdout
    as_json = json.loads(scda("train", *place, "--dry-run", "--json").stdout)
    assert (as_json["target"], as_json["preset"]) == ("100 images", "robust")
    assert not (tmp_path / "run").exists()


def test_an_old_name_of_an_option_works_and_is_not_in_the_help(
    scda: Scda, tiny: TinyData, tmp_path: Path
) -> None:
    place = ("--source", tiny.source, "--target", tiny.target, "--out", tmp_path / "run")
    old = ("--iterations", 2, "--rejection", 0.5)
    plan = json.loads(scda("train", *place, *old, "--dry-run", "--json").stdout)
    assert (plan["rounds"], plan["unknown_logit_bias"]) == (2, 0.5)
    shown = scda("train", "--help").stdout
    assert "--rounds" in shown
    assert not {"--iterations", "--rejection"} & set(shown.split())


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"source": "missing"}, 2, "missing: the source folder does not exist"),
        ({"target": "missing"}, 2, "missing: the target folder does not exist"),
        ({"source": "empty"}, 4, "no class folder found"),
        ({"target": "empty"}, 4, "no file found"),
        ({"preset": "best"}, 2, "preset is 'best'; expected robust, accurate, paper"),
        ({"backbone": "vgg"}, 2, "backbone 'vgg', expected"),
        ({"backbone": "conv4"}, 2, "no published weights; pass --weights FILE"),
        ({"weights": "missing.safetensors"}, 2, "no such weights file"),
        ({"lr": "-1"}, 2, "lr is -1.0; expected more than 0 and less than 1"),
        ({"lr": "fast"}, 2, "'--lr'"),
        ({"novel": "maybe"}, 2, "novel is 'maybe'; expected auto, yes or no"),
        ({"config": "missing.toml"}, 2, "cannot read the config"),
        ({"out": "file"}, 2, "is a file; expected a folder for the run"),
    ],
)
def test_what_train_refuses(
    scda: Scda, tiny: TinyData, tmp_path: Path, change: dict[str, str], code: int, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    paths = ("source", "target", "out", "config", "weights")
    options = {"source": tiny.source, "target": tiny.target, "out": tmp_path / "run"}
    given = {n: tmp_path / v if n in paths else v for n, v in change.items()}
    words = [w for n, v in {**options, **given}.items() for w in (f"--{n}", v)]
    refused(scda("train", *words, "--cache", tmp_path / "cache"), code, message)
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())


def test_a_missing_option_is_named(scda: Scda) -> None:
    refused(scda("train", "--source", "x"), 2, "--target")


def test_label_writes_a_row_per_file(
    scda: Scda, bundle: Path, photos: Path, tmp_path: Path
) -> None:
    out, lines = tmp_path / "labels.csv", tmp_path / "labels.jsonl"
    words = ("--workers", "1", "--threads", "1", "--batch-size", "1")
    done = scda("label", bundle, photos, "--out", out, "--out", lines, *words)
    assert done.returncode == 0, done.stderr
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["path"], row["label"]) for row in rows] == [
        ("a.jpg", "red"),
        ("sub/b.jpg", "discovered-000"),
    ]
    assert [json.loads(line)["path"] for line in lines.read_text().splitlines()] == [
        "a.jpg",
        "sub/b.jpg",
    ]


def test_label_says_how_fast_it_is_and_what_failed(
    scda: Scda, bundle: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (photos / "notes.jpg").write_text("no image")
    monkeypatch.setattr("scda.adapt.runtime.progress._LINE_EVERY_SECONDS", 0.0)
    done = scda("label", bundle, photos, "--out", tmp_path / "x.csv", "--batch-size", "1")
    pattern = r"^labelling: 3 of 3, \d+\.\d/s, 1 failed$"
    assert re.search(pattern, done.stderr, re.MULTILINE), done.stderr
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes a terminal of it
    monkeypatch.setenv("COLUMNS", "120")
    shown = scda("label", bundle, photos, "--out", tmp_path / "x.csv").stderr
    assert re.search(r"labelling: 3 of 3, \d+\.\d/s, 1 failed .*━", shown), shown


def test_a_labelling_that_is_stopped_says_how_to_go_on(
    scda: Scda, bundle: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object, note: str) -> None:
        raise KeyboardInterrupt

    out = ("--out", tmp_path / "x.csv")
    with monkeypatch.context() as patched:
        patched.setattr("scda.adapt.runtime.progress.Reporter.done", stop)
        message = "interrupted; rerun with --resume to continue"
        refused(scda("label", bundle, photos, *out), 130, message)
    assert scda("label", bundle, photos, *out, "--resume").returncode == 0


def test_label_ends_with_3_where_a_file_is_bad(
    scda: Scda, bundle: Path, photos: Path, tmp_path: Path
) -> None:
    (photos / "notes.jpg").write_text("no image")
    done = scda("label", bundle, photos, "--out", "-")
    assert done.returncode == 3
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["error_code"] for row in rows] == ["", "not_an_image", ""]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("missing", "photos", "--out", "x.csv"), 2, "missing: no such folder"),
        (("photos", "photos", "--out", "x.csv"), 2, "expected a bundle or a finished run"),
        (("bundle", "missing", "--out", "x.csv"), 2, "missing"),
        (("bundle", "empty", "--out", "x.csv"), 4, "no file to label"),
        (("bundle", "photos", "--out", "x.docx"), 2, ".jsonl"),
        (("bundle", "photos", "--out", "nowhere/x.csv"), 2, "nowhere"),
        (("bundle", "photos", "--out", "x.csv", "--provider", "tpu"), 2, "provider 'tpu'"),
        (("damaged", "photos", "--out", "x.csv"), 5, "model.onnx is damaged"),
        (("newer", "photos", "--out", "x.csv"), 5, "schema 99, this version of scda reads 1"),
    ],
)
def test_what_label_refuses(
    scda: Scda,
    bundle: Path,
    photos: Path,
    tmp_path: Path,
    words: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("bundle", "damaged", "newer"):
        shutil.copytree(bundle, tmp_path / name)
    (tmp_path / "damaged" / "model.onnx").write_bytes(b"x")
    manifest = tmp_path / "newer" / "bundle.json"
    manifest.write_text(manifest.read_text().replace('"schema_version": 1', '"schema_version": 99'))
    plain = ("--out", "--provider", "tpu")
    given = [word if word in plain else tmp_path / word for word in words]
    refused(scda("label", *given), code, message)
    assert not (tmp_path / "x.csv").exists()


def test_label_writes_everything_at_once(
    scda: Scda, bundle: Path, photos: Path, tmp_path: Path
) -> None:
    names = ("x.parquet", "x.labelstudio.json", "x.fiftyone.json")
    outs = [word for name in names for word in ("--out", tmp_path / name)]
    more = ("--embeddings", tmp_path / "x.npy", "--sort-into", tmp_path / "s", "--mode", "symlink")
    words = ("--min-confidence", "1", "--top", "2", "--image-root", "https://host/photos")
    done = scda("label", bundle, photos, *outs, *more, *words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "s" / "review" / "a.jpg").is_symlink()
    task = json.loads((tmp_path / "x.labelstudio.json").read_text())[1]
    assert task["data"]["image"] == "https://host/photos/sub/b.jpg"
    rows = pq.read_table(tmp_path / "x.parquet").to_pylist()
    assert [(row["review"], len(row["top"])) for row in rows] == [(True, 2)] * 2
    assert len(json.loads((tmp_path / "x.fiftyone.json").read_text())["labels"]) == 2
    assert np.load(tmp_path / "x.npy").shape == (2, 3)
    assert (tmp_path / "x.labelstudio.xml").is_file()


def test_label_needs_no_table(scda: Scda, bundle: Path, photos: Path, tmp_path: Path) -> None:
    refused(scda("label", bundle, photos), 2, "no output; expected --out FILE ending in .csv")
    assert scda("label", bundle, photos, "--embeddings", tmp_path / "x.npy").returncode == 0
    assert scda("label", bundle, photos, "--sort-into", tmp_path / "s").returncode == 0
    refused(scda("label", bundle, photos, "--sort-into", tmp_path / "s"), 2, "s: is not empty")
    refused(
        scda("label", bundle, photos, "--out", "-", "--top", "9"),
        2,
        "--top 9; expected 1 to 5, the",
    )


@pytest.mark.parametrize("command", [("inspect", "--verify"), ("evaluate",), ("serve",)])
def test_a_damaged_bundle_is_one_line_everywhere(
    scda: Scda, bundle: Path, photos: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    (copy / "parity.npz").write_bytes(b"x")
    words = (photos,) if command[0] == "evaluate" else ()
    refused(scda(command[0], copy, *words, *command[1:]), 5, "parity.npz is damaged")


def test_evaluate_needs_class_folders(scda: Scda, bundle: Path, tmp_path: Path) -> None:
    refused(scda("evaluate", bundle, tmp_path / "missing"), 2, "does not exist")
    refused(scda("evaluate", bundle, tmp_path), 4, "no class folder found")


def test_report_needs_a_run(scda: Scda, tmp_path: Path) -> None:
    refused(scda("report", tmp_path), 2, "expected a finished run")


def test_demo_never_replaces_what_is_no_demo(scda: Scda, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    refused(scda("demo", "--out", tmp_path, "--overwrite"), 2, "is not a demo")


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        # In process, test_algorithm.py stops runs with both.
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
    ],
)
def test_a_signal_stops_a_run_that_can_go_on(
    tiny: TinyData, tmp_path: Path, number: int, code: int
) -> None:
    options = tmp_path / "options.toml"
    short = "pretrain_steps = 30\nround_steps = 20\nbatch_size = 16\n"
    options.write_text(f'backbone = "conv4"\nweights = "{tiny.weights}"\n{short}')
    run = tmp_path / "run"
    words = ["train", "--source", tiny.source, "--target", tiny.target, "--out", run]
    words += ["--config", options, "--novel", "yes", "--k-max", "6", "--cache", tiny.cache]
    words += ["--rounds", "100000"]
    argv = [sys.executable, "-m", "scda.adapt", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    # Where the tests are a shell's background job they ignore SIGINT, and so would the child.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 120
    while not list(run.glob("checkpoints/round-0001.pt")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == code, said
    assert "--resume" in said.splitlines()[-1]
    assert list(run.glob("checkpoints/round-*.pt"))
    assert not (run / "bundle").exists()


def test_names_are_listed_set_and_undone(scda: Scda, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    assert "discovered-001" in scda("names", bundle).stdout
    done = scda("names", bundle, "--set", "discovered-000=lemon", "--drop", "discovered-001")
    assert (done.returncode, done.stderr) == (0, "")
    assert "lemon" in done.stdout
    assert "1 of 1 discovered classes named; 85% of 40 target images" in done.stdout
    shown = scda("names", bundle, "--undo", "--history").stdout
    assert "lemon" not in shown.splitlines()[0]
    assert shown.splitlines()[-1].endswith("undid: named discovered-000 lemon")
    fields = json.loads(scda("names", bundle, "--json", "--history").stdout)
    assert fields["names_version"] == 3
    assert [change["version"] for change in fields["history"]] == [1, 2, 3]
    assert fields["classes"][4]["answers_as"] == "unknown"
    assert (fields["progress"]["images_dropped"], fields["progress"]["next_id"]) == (
        6,
        "discovered-000",
    )


def test_inspect_and_names_say_what_is_doubtful(scda: Scda, tmp_path: Path) -> None:
    trust = ClassTrust(stability=0.4, leak=0.3, similarity=0.6, doubts=(Doubt.LEAKS,))
    judged = {"discovered-000": trust, "discovered-001": replace(trust, doubts=())}
    bundle = make_bundle(tmp_path / "bundle", class_trust=judged)
    shown = scda("inspect", bundle).stdout
    assert "near known-002 (0.60)\n" in shown
    assert f"    doubtful: {trust.reason}\n" in shown
    assert f"    {trust.measures}\n" in shown
    assert "(doubtful: leaks)" in scda("names", bundle).stdout
    classes = json.loads(scda("names", bundle, "--json").stdout)["classes"]
    assert [row["doubts"] for row in classes] == [[], [], [], ["leaks"], []]


def test_a_refused_call_of_names_changes_nothing(scda: Scda, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    orders = ("--merge", "discovered-000,discovered-001", "--set", "discovered-001=x")
    refused(scda("names", bundle, *orders), 2, "merged into discovered-000")
    assert not (bundle / "names.json").exists()
    refused(scda("names", tmp_path / "none"), 2, "expected a bundle")


def test_labels_follow_names_at_once(scda: Scda, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    folder, rows = tmp_path / "photos", tmp_path / "rows.jsonl"
    folder.mkdir()
    for colour in ("yellow", "cyan", "red"):
        (folder / f"{colour}.jpg").write_bytes(picture(colour))
    before = bundle / "bundle.json"
    stamp = before.read_bytes()
    scda("names", bundle, "--merge", "known-002,discovered-001", "--set", "discovered-000=lemon")
    assert scda("label", bundle, folder, "--out", rows).returncode == 0
    said = {row["path"]: row for row in map(json.loads, rows.read_text().splitlines())}
    assert said["yellow.jpg"]["label"] == "lemon"
    assert (said["cyan.jpg"]["label"], said["cyan.jpg"]["class_id"]) == ("red", "known-002")
    assert {row["names_version"] for row in said.values()} == {2}
    for row in said.values():
        assert sum(entry["confidence"] for entry in row["top"]) == pytest.approx(1, abs=1e-5)
    assert before.read_bytes() == stamp


def test_named_classes_are_promoted(
    scda: Scda, tiny_run: Path, tiny: TinyData, tmp_path: Path
) -> None:
    run, out = tmp_path / "run", tmp_path / "next"
    shutil.copytree(tiny_run, run)
    refused(scda("promote", run, "--out", out), 2, "no discovered class has a name yet")
    assert "scda-adapt report" in scda("names", run, "--set", "discovered-000=ring").stderr
    done = scda("promote", run, "--out", out, "--min-confidence", "0.3", "--source", tiny.source)
    assert done.returncode == 0, done.stderr
    classes = sorted(path.name for path in out.iterdir() if path.is_dir())
    assert classes == ["blue_disc", "green_bar", "red_square", "ring"]
    assert len(list((out / "blue_disc").iterdir())) > 20  # the source's and the target's
    plan = json.loads(
        scda(
            "train",
            "--source",
            out,
            "--target",
            tiny.target,
            "--out",
            tmp_path / "r",
            "--dry-run",
            "--json",
        ).stdout
    )
    assert "ring" in str(plan)


def test_a_list_is_labelled_with_a_summary(
    scda: Scda, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for colour in ("red", "blue"):
        (tmp_path / f"{colour}.jpg").write_bytes(picture(colour))
    (tmp_path / "list").write_text("red.jpg\nblue.jpg\nnone.jpg\n")
    out = ("--out", "rows.csv", "--summary", "summary.json", "--exclude", "blue*")
    done = scda("label", bundle, "--files-from", "list", *out)
    assert done.returncode == 3, done.stderr
    said = json.loads((tmp_path / "summary.json").read_text())
    assert (said["labels"], said["errors"]) == ({"red": 1}, {"unreadable": 1})
    refused(scda("label", bundle, "--out", "x.csv"), 2, "expected either IMAGES or --files-from")
    nowhere = ("--out", "x.csv", "--summary", "none/s.json")
    refused(scda("label", bundle, "red.jpg", *nowhere), 2, "no folder none")
    refused(
        scda("label", bundle, "red.jpg", "none.jpg", "--out", "x.csv", "--max-errors", "0"),
        2,
        "none.jpg",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--engine", "dask"), "--engine is 'dask'; expected local or ray"),
        (("--engine", "ray", "--sort-into", "x"), "--engine ray does not support --sort-into"),
        (
            ("--engine", "ray", "--embeddings", "x.npy"),
            "--engine ray does not support --embeddings",
        ),
        (("--engine", "ray", "--workers", "2"), "--engine ray does not support --workers"),
        (("--engine", "ray", "--image-root", "x"), "--engine ray does not support --image-root"),
        (("--engine", "ray", "--exclude-from", "x"), "ray does not support --exclude-from"),
        (("--exclude-from", "no.txt"), "no.txt: cannot read the list"),
        (("--engine", "ray"), "expected one folder or URI for Parquet files (--engine ray)"),
    ],
)
def test_engines_refuse_what_they_cannot_do(
    scda: Scda, bundle: Path, photos: Path, words: tuple[str, ...], message: str
) -> None:
    refused(scda("label", bundle, photos, "--out", photos / "x.csv", *words), 2, message)
    assert not (photos / "x.csv").exists()


def test_uris_need_the_ray_engine(scda: Scda, bundle: Path) -> None:
    refused(
        scda("label", bundle, "s3://a/b", "--out", "x.csv"), 2, "s3://a/b: a URI needs --engine ray"
    )
