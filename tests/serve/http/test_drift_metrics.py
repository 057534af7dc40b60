from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from scda.models.bundle import read_manifest
from scda.models.names import Names
from scda.serve.http.instruments import Instruments
from scda.serve.http.served.drift import WINDOW, DriftMetrics
from tests.bundles import make_bundle
from tests.models.drift.test_compare import FIGURES
from tests.serve.drift.test_drift import answer


class Here(Executor):
    """Does the work at once."""

    def submit(self, work: Any, /, *values: Any, **named: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(work(*values, **named))
        return done


def counted(make: Instruments) -> dict[tuple[str, ...], float]:
    samples = (sample for family in make.snapshot() for sample in family["samples"])
    return {(name, *labels.values()): value for name, labels, value in samples}


def test_a_window_of_far_images_is_counted_and_one_of_usual_ones_is_not(tmp_path: Path) -> None:
    make = Instruments()
    metrics = DriftMetrics(make, executor=Here)
    manifest = read_manifest(make_bundle(tmp_path / "bundle", on_target=FIGURES))
    metrics.begin(manifest, Names())
    # The classes have 10, 9, 8, 7 and 6 images of 40, at distances up to 0.4.
    shares = {info.class_id: info.size for info in manifest.classes}
    usual = [(i, 0.4 * n / 1000) for i, size in shares.items() for n in range(25 * size)]
    for class_id, distance in usual:
        metrics.add(answer(manifest.id, class_id, distance))
    found = counted(make)
    assert len(usual) == WINDOW
    assert found["scda_drift_windows_total", "false"] == 1
    assert sum(v for k, v in found.items() if k[0] == "scda_drift_alarms_total") == 0
    for class_id, distance in usual:
        metrics.add(answer(manifest.id, class_id, distance + 0.6))
    found = counted(make)
    assert found["scda_drift_windows_total", "true"] == 1
    assert found["scda_drift_alarms_total", "distance"] == 1
    assert found["scda_drift_alarms_total", "outliers"] == 1
    assert found["scda_drift_alarms_total", "classes"] == 0
    metrics.begin(replace(manifest, on_target=None), Names())
    for class_id, distance in usual:
        metrics.add(answer(manifest.id, class_id, distance + 0.6))
    assert counted(make)["scda_drift_windows_total", "true"] == 1  # nothing to compare with
