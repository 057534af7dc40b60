import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from PIL import features

from scda.adapt.runtime import doctor, speed
from scda.adapt.runtime.doctor import BROKEN, UNREADABLE, Examination, examine
from scda.models.cpus import usable_cpus
from scda.models.predictor import Predictor, load_predictor
from tests.bundles import make_bundle
from tests.conftest import Scda


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on every machine: no GPU, one ONNX Runtime."""
    monkeypatch.setattr(doctor, "_gpus", lambda: Examination({"gpus": []}))
    monkeypatch.setattr("scda.models.session.has_driver", lambda: False)
    monkeypatch.delenv("SCDA_BUNDLE", raising=False)
    installed(monkeypatch, {"onnxruntime": None, "onnxruntime-gpu": "1.31.1"})


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("doctor") / "bundle")


def installed(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None]) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: versions.get(name, real(name)))


def messages(found: Examination) -> list[str]:
    assert all(len(problem.message.splitlines()) == 1 for problem in found.problems)
    return [problem.message for problem in found.problems]


def test_where_all_is_right_it_says_what_is_there() -> None:
    found = examine()
    assert (messages(found), found.exit_code) == ([], 0)
    facts = found.facts
    assert facts["provider"] == facts["torch_device"] == "cpu"
    assert "CPUExecutionProvider" in facts["providers_offered"]
    assert facts["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    assert facts["cpus_usable"] == usable_cpus()
    assert {"JPEG", "WebP", "AVIF"} <= set(facts["codecs"])


def test_two_onnx_runtimes_are_a_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, {"onnxruntime": "1.32.0", "onnxruntime-gpu": "1.31.1"})
    found = examine()
    assert found.exit_code == BROKEN == 5
    (message,) = messages(found)
    assert message.startswith("onnxruntime and onnxruntime-gpu overwrite")
    assert "pip uninstall both" in message


def test_a_gpu_that_nothing_uses_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_gpus", lambda: Examination({"gpus": ["NVIDIA H100, 580.1"]}))
    for offered, cure in (
        (["CPUExecutionProvider"], "pip install onnxruntime-gpu"),
        (["CUDAExecutionProvider", "CPUExecutionProvider"], r"onnxruntime-gpu[cuda,cudnn]"),
    ):
        monkeypatch.setattr("onnxruntime.get_available_providers", lambda to=offered: to)
        found = examine()
        ours, torchs = messages(found)
        assert ours.startswith("ONNX Runtime runs on the CPU although a GPU was found")
        assert cure in ours
        assert torchs.startswith("torch runs on the CPU although a GPU was found")
        assert found.exit_code == BROKEN


def test_a_missing_codec_means_images_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "check", lambda codec: codec != "avif")
    found = examine()
    (message,) = messages(found)
    assert message.startswith("Pillow cannot read AVIF images; pip install")
    assert found.exit_code == UNREADABLE == 3
    assert "AVIF" not in found.facts["codecs"]


def test_a_pillow_that_does_not_work_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("PIL.features")
    monkeypatch.setitem(sys.modules, "PIL.features", None)
    found = examine()
    assert found.exit_code == BROKEN
    assert any("Pillow does not work" in problem.message for problem in found.problems)


def test_a_broken_onnx_runtime_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("onnxruntime.get_available_providers")  # as after removing one of two
    found = examine()
    (message,) = messages(found)
    assert message.startswith("onnxruntime does not work: ")
    assert found.exit_code == BROKEN


def test_a_missing_onnx_runtime_names_the_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "scda.models.onnx_runtime")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (message,) = messages(examine())
    assert message.startswith("ONNX Runtime is not installed; pip install 'scda[gpu]'")


def test_a_bundle_is_verified(bundle: Path, tmp_path: Path) -> None:
    found = examine(bundle)
    assert (messages(found), found.facts["status"]) == ([], ["ok"])
    damaged = tmp_path / "damaged"
    shutil.copytree(bundle, damaged)
    (damaged / "model.onnx").write_bytes(b"x")
    found = examine(damaged)
    assert messages(found) == [f"{damaged}: model.onnx is damaged (checksum differs)"]
    assert found.exit_code == BROKEN
    found = examine(tmp_path / "nowhere")
    assert "no such folder" in messages(found)[0]
    assert found.exit_code == 2


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], float]:
    """Milliseconds per image by folder and provider, in place of measurements."""
    times: dict[tuple[str, str], float] = {}

    def load(folder: Path, provider: str, threads: int) -> Predictor:
        assert threads == 1
        if (folder.name, provider) not in times:
            raise RuntimeError("it answers otherwise\nand more")
        stored = "int8" if folder.name == speed.INT8 else "fp32"
        precision = "bf16" if provider == "openvino" else "fp32"
        found = SimpleNamespace(
            manifest=SimpleNamespace(precision=stored),
            session=SimpleNamespace(provider=provider, precision=precision),
            milliseconds=times[folder.name, provider],
        )
        return cast("Predictor", found)

    def seconds(found: Any) -> float:
        return float(found.milliseconds / 1000)

    monkeypatch.setattr(speed, "load_predictor", load)
    monkeypatch.setattr(speed, "seconds_per_image", seconds)
    return times


def test_the_fastest_pair_is_told(
    bundle: Path, tmp_path: Path, timed: dict[tuple[str, str], float]
) -> None:
    here = shutil.copytree(bundle, tmp_path / "bundle")
    (tmp_path / speed.INT8).mkdir()
    timed |= {("bundle", "cpu"): 10, (speed.INT8, "cpu"): 5.4, ("bundle", "openvino"): 5.5}
    found = examine(here)
    assert found.problems == ()
    assert {name: found.facts[name] for name in found.facts if "ms_per" in name} == {
        "ms_per_image_cpu_fp32": 10,
        "ms_per_image_cpu_int8": 5.4,
        "ms_per_image_openvino_bf16": 5.5,
    }
    assert found.facts["fastest"] == "cpu_int8"
    assert found.facts["not_measured"] == ["bundle-int8 with openvino: it answers otherwise"]
    timed[("bundle", "cuda")] = 0.5
    assert speed.speeds(here, ("cpu", "cuda"))["fastest"] == "cuda_fp32"
    assert "ms_per_image_cpu_fp32" in speed.speeds(here, ("cpu",))
    timed.clear()
    assert speed.speeds(here, ("cpu",))["fastest"] is None


def test_a_pair_is_measured_for_a_bounded_time(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = load_predictor(bundle, provider="cpu", threads=1)
    clock = itertools.count()
    monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    assert speed.seconds_per_image(predictor) == 1 / 8  # a call of one second
    assert next(clock) == 2  # and no other
    monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: next(clock) * 1e-6))
    assert speed.seconds_per_image(predictor) == pytest.approx(1e-6 / 8)
    assert next(clock) == 3 + 2 * speed._CALLS


def test_the_command_line_says_it_to_people_and_programs(
    scda: Scda, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = scda("doctor")
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert (lines["provider"], lines["gpus"]) == ("cpu", "none")
    assert "bundle" not in lines
    monkeypatch.setenv("SCDA_BUNDLE", str(bundle))
    said = json.loads(scda("doctor", "--json").stdout)
    assert said["ms_per_image_cpu_fp32"] >= 0
    assert said["fastest"] in {"cpu_fp32", "openvino_fp32", "openvino_bf16"}
    assert (said["bundle"], said["problems"]) == (str(bundle), [])
    done = scda("doctor", bundle / "exemplars")
    assert done.returncode == 2
    assert done.stderr.startswith("problem: ")
    assert len(done.stderr.splitlines()) == 1


def test_it_works_without_torch() -> None:
    code = """
import sys
for name in ("torch", "torchvision", "timm", "onnx", "scipy"):
    sys.modules[name] = None  # importing it now fails
from scda.adapt.runtime.doctor import examine
print("torch_device" in examine().facts)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
