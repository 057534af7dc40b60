import dataclasses
from typing import Any

import pytest

from scda.models.trust import Trust

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
