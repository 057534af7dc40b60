import dataclasses
import json
from typing import Any

import pytest

from scda.models.trust import ClassTrust, Doubt, Trust

TRUST = Trust(expected_accuracy=0.871, low=0.806, high=0.93, measures={"knn_agreement": 0.9})


def test_the_sentence_says_the_estimate_in_whole_images() -> None:
    assert TRUST.sentence == (
        "About 87 of 100 images of known classes are expected to be right (81 to 93)."
    )


def test_it_is_read_as_it_was_written() -> None:
    assert Trust.from_json(dataclasses.asdict(TRUST)) == TRUST
    assert Trust.from_json({"expected_accuracy": 1, "low": 0, "high": 1}).measures == {}


@pytest.mark.parametrize(
    "fields",
    [{}, {"high": None}, {"high": True}, {"high": "1"}, {"more": 1.0}, {"measures": {"x": "y"}}],
)
def test_strange_fields_are_refused(fields: dict[str, Any]) -> None:
    whole = dataclasses.asdict(TRUST) | fields if fields else {"low": 0.5}
    with pytest.raises(TypeError):
        Trust.from_json(whole)


def class_trust(*doubts: Doubt) -> ClassTrust:
    return ClassTrust(stability=0.42, leak=0.354, similarity=0.6, doubts=doubts)


def test_every_doubt_about_a_class_gives_its_reason() -> None:
    unstable, leaks = class_trust(Doubt.UNSTABLE).reason, class_trust(Doubt.LEAKS).reason
    assert unstable == "only 42% of its images lie among their own, so it may mix several classes"
    assert leaks.startswith("35% of its images' neighbours are predicted as known")
    assert class_trust(Doubt.UNSTABLE, Doubt.LEAKS).reason == f"{unstable}; {leaks}"
    assert class_trust().reason == ""
    assert class_trust().measures == "42% of images among their own, 35% of neighbours known"


def test_the_trust_in_a_class_is_read_as_it_was_written() -> None:
    trust = class_trust(Doubt.LEAKS)
    assert ClassTrust.from_json(json.loads(json.dumps(dataclasses.asdict(trust)))) == trust


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"leak": None}, TypeError),
        ({"more": 1.0}, TypeError),
        ({"doubts": 7}, TypeError),
        ({"doubts": ["ugly"]}, ValueError),
    ],
)
def test_strange_fields_of_a_class_are_refused(
    fields: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        ClassTrust.from_json(dataclasses.asdict(class_trust()) | fields)
