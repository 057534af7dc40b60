"""The lines of `benchmarks.label`, on a small bundle and without the networks that it compares."""

import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import label
from benchmarks.label import BOUND, EAGER, FLOAT32, INT8, INT8_OV, OV, SINGLE
from benchmarks.speed import photographs as photographs_module
from benchmarks.speed import precisions
from benchmarks.speed.photographs import PHOTOGRAPHS, photographs_in
from benchmarks.speed.rates import Rate, middle, table
from scda.models.bundle import read_manifest
from scda.models.errors import UsageError
from scda.models.images import read_file
from scda.models.onnx_runtime import ort
from scda.models.predictor import Predictor, load_predictor
from tests.benchmarks.speeds import as_int8
from tests.bundles import RGB, make_bundle, picture


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for number, colour in enumerate([*RGB, *RGB]):
        (folder / f"{number}.jpg").write_bytes(picture(colour, size=(300, 260)))
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle", crop_px=224)


@pytest.fixture
def no_eager(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Leave out the network in eager mode; return the number of files of every call."""
    calls: list[int] = []
    monkeypatch.setattr(label, "with_torch", lambda paths: calls.append(len(paths)))
    return calls


def test_every_program_labels_every_file_in_every_round(
    bundle: Path,
    images: Path,
    no_eager: list[int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    labelled: list[tuple[str, str, int]] = []
    photos = shutil.copytree(images, images.with_name("photos"))
    for path in sorted(photos.iterdir())[2:]:
        path.unlink()

    def ours(predictor: Predictor, paths: Sequence[Path]) -> None:
        session, manifest = predictor.session, predictor.manifest
        labelled.append((manifest.precision, session.provider, len(paths)))

    monkeypatch.setattr(label, "ours", ours)
    monkeypatch.setattr(label, "why_no_openvino", lambda: "it is not installed")
    monkeypatch.setattr(label, "why_no_faster_openvino", lambda: "it is not installed")
    words = ["--bundle", bundle, "--images", images, "--int8", as_int8(bundle), "--rounds", "2"]
    words += ["--photos", photos]
    label.main(list(map(str, words)))
    assert labelled == [
        *[("fp32", "cpu", 5), ("int8", "cpu", 5)] * 2,
        *[("fp32", "cpu", 1), ("int8", "cpu", 1)] * 2,
    ]
    assert no_eager == [5, 5, 1, 1]
    said = capsys.readouterr().out
    assert f"{BOUND} " in said
    assert f"{SINGLE} " in said
    assert f"\n| {INT8} | " in said
    assert f"images: images/s | ms of processor | {PHOTOGRAPHS}: images/s |" in said
    lines = said.splitlines()[-5:]
    names = ("label_bound", "label_vs_torch", "label_vs_single", "label_int8")
    for line, name in zip(lines, names, strict=False):
        assert line.startswith((f"PASS name={name} ", f"FAIL name={name} "))
    assert lines[-1] == "NOT APPLICABLE name=label_openvino: it is not installed"


def rates(**per_second: float) -> dict[str, Rate]:
    names = {"bound": BOUND, "ours": FLOAT32, "int8": INT8, "ov": OV, "int8_ov": INT8_OV}
    names |= {"single": SINGLE, "eager": EAGER}
    return {names[name]: Rate(value, 1 / value) for name, value in per_second.items()}


def test_int8_and_openvino_are_compared_with_the_bound_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(label, "why_no_faster_openvino", lambda: None)
    rounds = [
        rates(bound=100, ours=93, int8=130, ov=151, single=80, eager=20),
        rates(bound=100, ours=92, int8=121, ov=149, single=80, eager=20),
        rates(bound=50, ours=20, int8=55, ov=71, single=80, eager=20),
    ]
    lines = list(map(str, label.answers(rounds)))
    assert lines == [
        "PASS name=label_bound ratio=0.92 bar=0.92",
        "PASS name=label_vs_torch ratio=4.6 bar=2",
        "PASS name=label_vs_single ratio=1.15 bar=1.15",
        "PASS name=label_int8 ratio=1.21 bar=1.2",
        "FAIL name=label_openvino ratio=1.49 bar=1.5",
    ]


def test_openvino_is_compared_with_the_faster_of_both_bundles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(label, "why_no_faster_openvino", lambda: None)
    others = {"bound": 100, "ours": 93, "int8": 130, "single": 80, "eager": 20}
    vnni = label.answers([rates(**others, ov=95, int8_ov=226)])
    assert str(vnni[-1]) == "PASS name=label_openvino ratio=2.26 bar=1.5"
    amx = label.answers([rates(**others, ov=160, int8_ov=120)])
    assert str(amx[-1]) == "PASS name=label_openvino ratio=1.6 bar=1.5"


def test_without_a_bundle_in_int8_its_line_does_not_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label, "why_no_faster_openvino", lambda: "no VNNI")
    found = label.answers([rates(bound=1, ours=1, single=0.5, eager=0.5)])
    assert list(map(str, found[-2:])) == [
        "NOT APPLICABLE name=label_int8: no bundle of --int8",
        "NOT APPLICABLE name=label_openvino: no VNNI",
    ]
    assert all(answer.passes for answer in found)


def test_labelling_runs_the_bundle_in_int8_and_the_other_program_its_file(
    bundle: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label, "why_no_openvino", lambda: "it is not installed")
    predictor = load_predictor(bundle, provider="cpu", threads=1)
    work = label.programs(predictor, as_int8(bundle))
    assert list(work) == [FLOAT32, INT8, SINGLE, EAGER]
    paths = sorted(images.iterdir())
    work[SINGLE](paths)
    found = label.measured(predictor, {name: work[name] for name in (FLOAT32, INT8)}, paths)
    assert set(found) == {BOUND, FLOAT32, INT8}
    assert all(rate.per_second > 0 and rate.processor_seconds > 0 for rate in found.values())


def test_another_models_bundle_is_refused(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_bundle(tmp_path / "other", num_discovered=1)
    exact = read_manifest(bundle)
    assert precisions.int8_version(as_int8(bundle), exact).name == "int8"
    with pytest.raises(UsageError, match=rf"its model is float32; expected int8 of {exact.id}$"):
        precisions.int8_version(other, exact)
    with pytest.raises(UsageError, match=f"its model is int8 of {exact.id}; expected int8 of"):
        precisions.int8_version(as_int8(bundle), read_manifest(other))
    with pytest.raises(SystemExit):
        label.main(["--bundle", str(bundle), "--images", str(tmp_path), "--int8", str(other)])
    assert "its model is float32; expected int8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("flags\t\t: sse2 avx512_vnni\nvmx flags\t: a\n", None),
        ("flags\t\t: sse2 avx_vnni\n", None),
        ("processor\t: 0\nflags\t\t: sse2 amx_tile amx_bf16\n", None),
        ("flags\t\t: sse2 avx512f\nvmx flags\t: vnni\n", "the CPU has neither AMX nor VNNI"),
        ("", "the CPU has neither AMX nor VNNI"),
    ],
)
def test_openvino_has_a_bound_where_the_cpu_has_amx_or_vnni(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, reason: str | None
) -> None:
    facts = tmp_path / "cpuinfo"
    facts.write_text(flags)
    monkeypatch.setattr(precisions, "_CPU_FACTS", facts)
    monkeypatch.setattr(precisions, "why_no_openvino", lambda: None)
    assert precisions.why_no_faster_openvino() == reason
    monkeypatch.setattr(precisions, "_CPU_FACTS", tmp_path / "absent")
    assert precisions.why_no_faster_openvino() == "the CPU has neither AMX nor VNNI"


def test_openvino_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    reason = "OpenVINO is not installed; pip install 'scda[openvino]'"
    assert precisions.why_no_openvino() == precisions.why_no_faster_openvino() == reason


def test_the_bound_is_that_of_onnx_runtime_after_a_warm_up(
    bundle: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = load_predictor(bundle, provider="cpu", threads=1)
    ran: list[int] = []
    real = predictor.session.run

    def run(pixels: object) -> object:
        ran.append(len(pixels))  # type: ignore[arg-type]
        return real(pixels)  # type: ignore[arg-type]

    monkeypatch.setattr(predictor.session, "run", run)
    assert isinstance(predictor.session._session, ort.InferenceSession)
    assert label.processor_seconds(predictor, sorted(images.iterdir())) > 0
    assert ran == [8, 8, 2]  # after a warm-up


def test_a_missing_folder_of_photographs_is_filled(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(photographs_module, "COUNT", 2)
    monkeypatch.setattr(photographs_module, "_PIXELS", 30_000)
    made = photographs_in(tmp_path / "photos", sorted(images.iterdir()))
    assert [path.name for path in made] == ["0000.jpg", "0001.jpg"]
    assert read_file(made[0]).size == (186, 161)
    before = made[0].stat().st_mtime_ns
    assert photographs_in(tmp_path / "photos", []) == made
    assert made[0].stat().st_mtime_ns == before


def test_the_table_has_the_medians_of_the_rounds() -> None:
    rounds = [{"a": Rate(3, 0.01)}, {"a": Rate(1, 0.02)}, {"a": Rate(2, 0.06)}]
    found = middle(rounds)
    assert found == {"a": Rate(2, 0.02)}
    assert table({"small": found, "large": {"a": Rate(0.25, 4)}}).splitlines() == [
        "| program | small: images/s | ms of processor | large: images/s | ms of processor |",
        "|---|---|---|---|---|",
        "| a | 2.0 | 20.0 | 0.2 | 4000.0 |",
    ]
