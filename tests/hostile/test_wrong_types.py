"""A field of another type in a bundle or a run is one line that names it, whoever reads it."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.responses import JSONResponse

from scda.adapt.cli.inspect import inspect
from scda.adapt.runs.folder import RunFolder, read_config
from scda.models.bundle import read_manifest
from scda.models.errors import GateError, ScdaError
from scda.models.places import check_outside, training_folder
from scda.models.target_figures import TargetFigures
from scda.models.trust import ClassTrust, Trust
from scda.serve.files.target_images import open_target_images, read_target_images
from scda.serve.review.application import Review
from scda.serve.review.promote import promote
from tests.bundles import make_bundle, picture

Place = tuple[str | int, ...]  # of keys in a JSON object
STRANGE: tuple[Any, ...] = (
    *(None, True, 7, -1, 2.5, 10**400, float("nan"), "x", "\0", "\ud800"),
    *([], [7], ["x"], {}, {"x": "y"}, {"max_bytes": "?"}),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with every field, beside its target."""
    root = tmp_path_factory.mktemp("whole")
    (root / "target").mkdir()
    for name in ("a.jpg", "b.jpg"):
        (root / "target" / name).write_bytes(picture("red"))
    bundle = make_bundle(
        root / "bundle",
        targets={"a.jpg": "red", "b.jpg": "red"},
        trust=Trust(expected_accuracy=0.9, low=0.8, high=1.0, measures={"separation": 2.5}),
        on_target=TargetFigures(images=40, outlier_share=0.025, mean_confidence=0.9),
        class_trust={
            "discovered-000": ClassTrust(stability=0.4, leak=0.3, similarity=0.6, doubts=())
        },
    )
    stored = json.loads((bundle / "bundle.json").read_text())
    stored["run"] = {
        "source": str(root / "source"),
        "target": str(root / "target"),
        "config": {"seed": 1},
        "limits": {"max_bytes": 10**6},
        "notes": ["k unsure: look at the pictures"],
        "failure": "",
        "seconds": 2.5,
        "host": "here",
    }
    (bundle / "bundle.json").write_text(json.dumps(stored))
    (bundle / "names.json").write_text('{"version": 1, "labels": {"discovered-000": "x"}}')
    return bundle


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the path of every value in a JSON object; of lists, their first entry is enough."""
    if place:
        yield place
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*place, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*place, 0))


def replaced(stored: dict[str, Any], place: Place, value: Any) -> dict[str, Any]:
    changed = json.loads(json.dumps(stored))
    inner: Any = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return dict(changed)


def forge(bundle: Path, stored: dict[str, Any]) -> None:
    """Write bundle.json with the id that fits its contents, if they can have one.

    Raises:
        GateError: If they cannot.
    """
    (bundle / "bundle.json").write_text(json.dumps(stored))
    try:
        read_manifest(bundle, checked=False)
    except GateError as error:
        _, forged, end = str(error).partition("contents give ")
        if not forged:
            raise
        (bundle / "bundle.json").write_text(json.dumps({**stored, "id": end.rstrip(")")}))


def use(bundle: Path) -> None:
    """Do with a bundle what the commands and pages do, and what needs no model."""
    manifest = read_manifest(bundle, checked=False)
    inspect(bundle, verify=False, as_json=False)
    inspect(bundle, verify=False, as_json=True)
    images = open_target_images(bundle, manifest)
    review = Review(bundle, manifest, images)
    JSONResponse(review.state(review.names()))
    if not images.why_not:
        images.thumbnail(0)
    for name in ("source", "target"):
        check_outside(bundle.parent / "out", training_folder(manifest.run, name))
    promote(bundle, bundle.parent / "out")


def test_every_field_of_a_bundle_is_refused_in_one_line_or_used(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = shutil.copytree(whole, tmp_path / "bundle")
    stored = json.loads((bundle / "bundle.json").read_text())
    outcomes = Counter[str]()
    for place, value in product(places(stored), STRANGE):
        try:
            forge(bundle, replaced(stored, place, value))
            use(bundle)
            outcomes["used"] += 1
        except ScdaError as error:
            outcomes[type(error).__name__] += 1
        except Exception as error:
            raise AssertionError(f"{place} is {value!a:.40}") from error
        capsys.readouterr()
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
    assert outcomes["GateError"] > 5 * outcomes["used"] > 0


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("run", "target"), 5, "target is 5; expected a path"),
        (("run", "source"), "a\0b", r"source is 'a\\x00b'; expected a path"),
        (("run", "notes"), "ok", "notes is 'ok'; expected a list of texts"),
        (("run", "limits"), [1], r"limits is \[1\]; expected an object"),
        (("status",), "ok", "status is 'ok'; expected a list of texts"),
        (("classes", 0, "size"), -1, "size is -1; expected a count"),
        (("classes", 0, "radius"), {}, "found no radius q99"),
        (("classes", 0, "kind"), "discovered", "not known or discovered, in this order"),
        (("classes", 3, "kind"), "new", "not known or discovered, in this order"),
        (("classes", 1, "class_id"), "known-000", "found two classes of one id"),
        (("classes", 3, "nearest_known"), "dog", "found a nearest known class that is none"),
        (("trust", "low"), 10**400, "low is 1000.*; expected a finite number"),
        (("preprocessing", "crop_px"), 32.0, r"crop_px is 32\.0; expected a whole number"),
    ],
)
def test_the_field_is_named(
    whole: Path, tmp_path: Path, place: Place, value: object, told: str
) -> None:
    bundle = shutil.copytree(whole, tmp_path / "bundle")
    stored = json.loads((bundle / "bundle.json").read_text())
    with pytest.raises(GateError, match=rf"^{bundle}/bundle\.json: .*{told}"):  # noqa: PT012
        forge(bundle, replaced(stored, place, value))
        read_manifest(bundle, checked=False)


CONFIG = {"config": {"seed": 1}, "data": {}, "source": "a", "target": "b", "limits": {}}


@pytest.mark.parametrize("name", CONFIG)
@pytest.mark.parametrize("value", [None, 5, [1], "\0"])
def test_every_field_of_a_run_is_refused_in_one_line(
    tmp_path: Path, name: str, value: object
) -> None:
    run = RunFolder(tmp_path)
    run.config.write_text(json.dumps({**CONFIG, name: value}))
    with pytest.raises(GateError, match=rf"config\.json: damaged: {name} is [^\n]*; expected"):
        read_config(run)


@pytest.mark.parametrize("name", ["config", "data"])
def test_a_run_without_its_configuration_is_damaged(tmp_path: Path, name: str) -> None:
    run = RunFolder(tmp_path)
    run.config.write_text(json.dumps({key: CONFIG[key] for key in CONFIG if key != name}))
    with pytest.raises(GateError, match=rf"config\.json: damaged: {name} is missing"):
        read_config(run)


@pytest.mark.parametrize(
    "line", ["5", "[]", "{}", '{"round": "1"}', '{"step": 1}', '{"step": 1, "during": null}']
)
def test_a_line_of_the_metrics_that_is_no_record_is_damage(tmp_path: Path, line: str) -> None:
    run = RunFolder(tmp_path)
    run.metrics.write_text(f'{{"round": 0}}\n{line}\n')
    with pytest.raises(GateError, match=r"metrics\.jsonl: damaged: "):
        run.records()


@pytest.mark.parametrize(
    "column",
    [{"path": [1]}, {"path": [None]}, {"class_id": [[]]}, {"confidence": ["x"]}, {"sha256": [7]}],
)
def test_a_table_of_neighbours_of_other_types_is_refused(
    whole: Path, tmp_path: Path, column: dict[str, list[object]]
) -> None:
    bundle = shutil.copytree(whole, tmp_path / "bundle")
    good = {"path": ["a.jpg"], "class_id": ["known-000"], "confidence": [0.9], "sha256": [""]}
    for table in ({**good, **column}, {k: v for k, v in good.items() if k not in column}):
        if table.keys() < good.keys() and "sha256" not in table:
            continue  # as of an earlier version
        pq.write_table(pa.table(table), bundle / "neighbours.parquet")
        with pytest.raises(GateError, match=r"neighbours\.parquet"):
            read_target_images(bundle)
    (bundle / "neighbours.parquet").write_bytes(b"PAR1")
    with pytest.raises(GateError, match=r"neighbours\.parquet"):
        read_target_images(bundle)
