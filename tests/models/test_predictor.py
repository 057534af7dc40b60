import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from scda.models.errors import GateError, UsageError
from scda.models.images import read_image
from scda.models.index import build_index
from scda.models.names import UNKNOWN, Names
from scda.models.predictor import FIELDS, Outputs, Prediction, Predictor, load_predictor
from scda.models.preprocess import Pixels
from tests.bundles import picture

# The test bundle's classes in output order, each told by its colour.
COLOURS = ("blue", "green", "red", "yellow", "cyan")
IDS = ("known-000", "known-001", "known-002", "discovered-000", "discovered-001")
NAMINGS = {
    "none": Names(),
    "renamed": Names(version=2, labels={"discovered-000": "sun", "known-000": "sea"}),
    "merged": Names(version=3, merges={"discovered-001": "known-000"}),
    "dropped": Names(version=4, drops=frozenset({"discovered-000", "known-001"})),
    "all dropped": Names(version=5, drops=frozenset(IDS)),
    "all merged": Names(version=6, merges=dict.fromkeys(IDS[1:], IDS[0])),
    "all at once": Names(
        version=7,
        labels={"known-002": "rose"},
        merges={"discovered-001": "discovered-000"},
        drops=frozenset({"known-001"}),
    ),
}


def outputs(probabilities: Sequence[float], features: Sequence[float] = (0.5, 0, 0)) -> Outputs:
    """One image's outputs, as if the model had given them."""
    return Outputs(np.array([probabilities], np.float32), np.array([features], np.float32))


def prepared(predictor: Predictor, *colours: str) -> list[Pixels]:
    return [predictor.prepare(read_image(picture(colour))) for colour in colours]


def noise(count: int) -> list[Pixels]:
    rng = np.random.default_rng(0)
    return list(rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8))


def assert_same(first: Prediction, second: Prediction) -> None:
    """The same answer, but for float32 sums in another order."""
    for mine, other in zip(numbers(first), numbers(second), strict=True):
        assert mine == pytest.approx(other, abs=1e-5)
    assert words(first) == words(second)


def numbers(prediction: Prediction) -> list[float]:
    distances = [entry["distance"] for entry in prediction.nearest]
    confidences = [entry["confidence"] for entry in prediction.top]
    alone = [prediction.confidence, prediction.entropy, prediction.margin]
    return [*alone, *distances, *confidences]


def words(prediction: Prediction) -> list[object]:
    order = [entry["class_id"] for entry in (*prediction.nearest, *prediction.top)]
    return [prediction.label, prediction.kind, prediction.class_id, prediction.outlier, *order]


@pytest.mark.parametrize(("colour", "class_id"), list(zip(COLOURS, IDS, strict=True)))
def test_an_image_gets_its_class(predictor: Predictor, colour: str, class_id: str) -> None:
    (prediction,) = predictor.predict(prepared(predictor, colour))
    assert prediction.class_id == class_id
    assert prediction.kind == class_id.split("-")[0]
    assert prediction.label == (colour if prediction.kind == "known" else class_id)
    assert prediction.confidence > 0.9
    assert prediction.nearest[0]["class_id"] == class_id
    assert prediction.nearest[0]["distance"] < 0.01
    assert not prediction.outlier
    assert prediction.model_id == predictor.manifest.id
    assert prediction.names_version == 0


def test_no_images_get_no_predictions(predictor: Predictor) -> None:
    assert predictor.predict([]) == []


def test_answers_come_in_the_order_of_the_images(predictor: Predictor) -> None:
    answers = predictor.predict(prepared(predictor, *COLOURS[::-1], *COLOURS))
    assert [answer.class_id for answer in answers] == [*IDS[::-1], *IDS]


def test_the_other_images_of_a_batch_change_no_answer(predictor: Predictor) -> None:
    images = [*noise(30), *prepared(predictor, *COLOURS)]
    together = predictor.predict(images)
    for image, prediction in zip(images, together, strict=True):
        (alone,) = predictor.predict([image])
        assert_same(alone, prediction)
    for prediction, again in zip(reversed(together), predictor.predict(images[::-1]), strict=True):
        assert_same(prediction, again)


@pytest.mark.parametrize("naming", NAMINGS)
def test_probabilities_add_up_to_one_under_any_names(predictor: Predictor, naming: str) -> None:
    predictor.rename(NAMINGS[naming])
    for prediction in predictor.predict(noise(10)):
        confidences = [entry["confidence"] for entry in prediction.top]
        assert sum(confidences) == pytest.approx(1, abs=1e-6)  # there are no more than five
        assert confidences == sorted(confidences, reverse=True)
        assert prediction.confidence == confidences[0]
        assert prediction.label == prediction.top[0]["label"]
        assert prediction.names_version == NAMINGS[naming].version


def test_entropy_and_margin_are_what_their_definitions_say(predictor: Predictor) -> None:
    probabilities = (0.125, 0.5, 0.25, 0.0, 0.125)
    (prediction,) = predictor.describe(outputs(probabilities))
    by_hand = -sum(p * math.log(p) for p in probabilities if p)
    assert prediction.entropy == pytest.approx(by_hand, abs=1e-6)
    assert prediction.margin == 0.25
    assert prediction.confidence == 0.5


def test_certainty_has_no_entropy_and_doubt_has_all(predictor: Predictor) -> None:
    (certain,) = predictor.describe(outputs((0, 0, 1, 0, 0)))
    assert (certain.entropy, certain.margin, certain.confidence) == (0, 1, 1)
    (doubtful,) = predictor.describe(outputs((0.2,) * 5))
    assert doubtful.entropy == pytest.approx(math.log(5), abs=1e-6)
    assert (doubtful.margin, doubtful.class_id) == (0, "known-000")


def test_merging_sums_under_the_others_id(predictor: Predictor) -> None:
    predictor.rename(Names(version=1, merges={"discovered-001": "known-000"}))
    (prediction,) = predictor.describe(outputs((0.25, 0.375, 0.0625, 0.0625, 0.25)))
    assert (prediction.class_id, prediction.label, prediction.kind) == (*IDS[:1], "blue", "known")
    assert prediction.confidence == 0.5
    assert prediction.margin == 0.125
    assert "discovered-001" not in {entry["class_id"] for entry in prediction.top}


def test_a_dropped_class_answers_unknown(predictor: Predictor) -> None:
    predictor.rename(Names(version=1, drops=frozenset({"discovered-000", "known-001"})))
    (prediction,) = predictor.describe(outputs((0.25, 0.25, 0.125, 0.375, 0)))
    assert (prediction.class_id, prediction.label, prediction.kind) == (UNKNOWN,) * 3
    assert prediction.confidence == 0.625
    assert prediction.top[0] == {"class_id": UNKNOWN, "label": UNKNOWN, "confidence": 0.625}


def test_a_label_changes_neither_id_nor_kind(predictor: Predictor) -> None:
    predictor.rename(Names(version=1, labels={"discovered-000": "sun"}))
    (prediction,) = predictor.predict(prepared(predictor, "yellow"))
    said = (prediction.class_id, prediction.label, prediction.kind)
    assert said == ("discovered-000", "sun", "discovered")
    assert prediction.nearest[0]["label"] == prediction.top[0]["label"] == "sun"


def test_only_one_class_left_is_certain(predictor: Predictor) -> None:
    predictor.rename(NAMINGS["all merged"])
    (prediction,) = predictor.describe(outputs((0.25, 0.25, 0.125, 0.125, 0.25)))
    assert (prediction.confidence, prediction.margin, prediction.entropy) == (1, 1, 0)
    assert len(prediction.top) == len(prediction.nearest) == 1


def test_of_merged_classes_the_nearest_centroid_speaks_once(predictor: Predictor) -> None:
    blue, cyan = predictor.predict(prepared(predictor, "blue", "cyan"))
    predictor.rename(Names(version=1, merges={"discovered-001": "known-000"}))
    for before, after in zip(
        (blue, cyan), predictor.predict(prepared(predictor, "blue", "cyan")), strict=True
    ):
        ids = [entry["class_id"] for entry in after.nearest]
        assert ids[0] == "known-000"
        assert len(ids) == len(set(ids)) == 4
        assert after.nearest[0]["distance"] == before.nearest[0]["distance"]


def test_the_distance_to_a_dropped_class_is_one_to_unknown(predictor: Predictor) -> None:
    predictor.rename(Names(version=1, drops=frozenset({"known-000", "discovered-001"})))
    (prediction,) = predictor.predict(prepared(predictor, "blue"))
    assert [entry["class_id"] for entry in prediction.nearest].count(UNKNOWN) == 1
    assert prediction.nearest[0]["class_id"] == UNKNOWN


def test_distances_rise(predictor: Predictor) -> None:
    for prediction in predictor.predict(noise(5)):
        distances = [entry["distance"] for entry in prediction.nearest]
        assert distances == sorted(distances)
        assert 0 <= distances[0] <= distances[-1] <= 2


def test_an_outlier_is_farther_from_every_centroid_than_that_classs_own_quantile(
    predictor: Predictor,
) -> None:
    angles, quantiles = (0.0, 60.0, 180.0), (0.01, 0.2, 0.5)
    predictor = with_classes(predictor, [at_angle(angle) for angle in angles], quantiles)
    found = set()
    for asked in range(0, 360, 5):
        distances = [1 - math.cos(math.radians(asked - angle)) for angle in angles]
        expected = all(d > q for d, q in zip(distances, quantiles, strict=True))
        (prediction,) = predictor.describe(outputs((1, 0, 0), at_angle(asked)))
        assert prediction.outlier == expected, asked
        found.add(expected)
    assert found == {True, False}


def at_angle(degrees: float) -> tuple[float, float, float]:
    return math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), 0.0


def with_classes(
    predictor: Predictor, centroids: Sequence[Sequence[float]], quantiles: Sequence[float]
) -> Predictor:
    """The predictor with other classes; its model no longer fits, and `describe` needs none."""
    info = predictor.manifest.classes[0]
    classes = tuple(
        dataclasses.replace(info, class_id=f"known-{i:03d}", radius={"q99": quantile})
        for i, quantile in enumerate(quantiles)
    )
    manifest = dataclasses.replace(predictor.manifest, classes=classes)
    index = build_index(np.array(centroids, np.float32))
    return Predictor(predictor.folder, manifest, predictor.session, index)


@pytest.mark.parametrize("count", [1, 4, 5, 6, 40])
def test_top_and_nearest_have_at_most_five_entries(predictor: Predictor, count: int) -> None:
    angles = [360 * i / count for i in range(count)]
    predictor = with_classes(predictor, [at_angle(angle) for angle in angles], [0.1] * count)
    shares = np.arange(1, count + 1) / np.arange(1, count + 1).sum()
    (prediction,) = predictor.describe(outputs(shares.tolist(), at_angle(1)))
    assert len(prediction.top) == len(prediction.nearest) == min(count, 5)
    best = [f"known-{i:03d}" for i in range(count)][: -count - 1 : -1][:5]
    assert [entry["class_id"] for entry in prediction.top] == best
    assert prediction.nearest[0]["class_id"] == "known-000"


@pytest.mark.parametrize("top", [1, 5, 7, 40])
def test_top_may_have_another_number_of_entries(predictor: Predictor, top: int) -> None:
    angles = [36.0 * i for i in range(10)]
    predictor = with_classes(predictor, [at_angle(angle) for angle in angles], [0.1] * 10)
    (prediction,) = predictor.describe(outputs([0.1] * 10, at_angle(1)), top=top)
    assert (len(prediction.top), len(prediction.nearest)) == (min(top, 10), 5)


def test_merging_the_nearest_classes_still_gives_five_entries(predictor: Predictor) -> None:
    centroids = [at_angle(10 * i) for i in range(12)]
    predictor = with_classes(predictor, centroids, [0.1] * 12)
    predictor.rename(Names(merges={f"known-{i:03d}": "known-000" for i in range(1, 7)}))
    (prediction,) = predictor.describe(outputs([1 / 12] * 12, at_angle(0)))
    nearest = [entry["class_id"] for entry in prediction.nearest]
    assert nearest == ["known-000", *(f"known-{i:03d}" for i in range(7, 11))]


def test_a_prediction_is_json_with_the_contracts_fields(predictor: Predictor) -> None:
    (prediction,) = predictor.predict(prepared(predictor, "red"))
    fields = json.loads(json.dumps(prediction.to_json(), allow_nan=False))
    assert tuple(fields) == FIELDS
    assert FIELDS == (
        "label",
        "kind",
        "class_id",
        "confidence",
        "outlier",
        "entropy",
        "margin",
        "nearest",
        "top",
        "model_id",
        "names_version",
    )
    assert [set(entry) for entry in fields["top"]] == [{"class_id", "label", "confidence"}] * 5
    assert [set(entry) for entry in fields["nearest"]] == [{"class_id", "label", "distance"}] * 5


def test_names_in_the_bundle_are_in_force_from_the_start(bundle: Path) -> None:
    (bundle / "names.json").write_text('{"version": 9, "labels": {"known-002": "rose"}}')
    predictor = load_predictor(bundle, provider="cpu", threads=1)
    (prediction,) = predictor.predict(prepared(predictor, "red"))
    assert (prediction.label, prediction.names_version, predictor.names.version) == ("rose", 9, 9)


def test_renaming_back_gives_the_first_answers(predictor: Predictor) -> None:
    images = noise(5)
    before = predictor.predict(images)
    predictor.rename(NAMINGS["all at once"])
    predictor.rename(Names())
    assert predictor.predict(images) == before


@pytest.mark.parametrize("folder", ["missing", "."])
def test_a_folder_that_is_no_bundle_is_a_gate_error(tmp_path: Path, folder: str) -> None:
    with pytest.raises(GateError, match=r"bundle\.json"):
        load_predictor(tmp_path / folder, provider="cpu")


def test_an_unknown_provider_is_a_usage_error(whole_bundle: Path) -> None:
    with pytest.raises(UsageError, match="provider 'tpu'"):
        load_predictor(whole_bundle, provider="tpu")


def test_features_that_are_no_numbers_are_not_answered(predictor: Predictor) -> None:
    with pytest.raises(ValueError, match="finite"):
        predictor.describe(outputs((1, 0, 0, 0, 0), (float("nan"), 0, 0)))
