import pytest

from scda.adapt.discovery.findings import Status
from scda.adapt.discovery.trust.calibration import (
    AGREEING,
    DOUBTFUL,
    ERROR,
    KNOWN_ERROR,
    WEAK,
    Line,
    contradiction,
)
from scda.adapt.discovery.trust.estimate import doubts, estimate

USED = {*KNOWN_ERROR.weights, *ERROR.weights}
FAULTLESS = {name: 0.0 if name == "border" else 1.0 for name in {*USED, "knn_agreement"}}


def test_an_error_is_the_sum_of_its_signs() -> None:
    line = Line(0.1, {"border": 2.0, "other": 0.5})
    assert line.error({"border": 0.1, "other": 0.8, "unused": 0.0}) == pytest.approx(0.4)
    assert line.error({"border": 0.9, "other": 0.8}) == 1
    assert Line(-0.1, {}).error({}) == 0


def test_a_run_without_a_fault_is_trusted() -> None:
    trust = estimate(FAULTLESS)
    assert trust.expected_accuracy == 1 - KNOWN_ERROR.base
    assert 0.8 < trust.low < trust.expected_accuracy < trust.high <= 1
    assert doubts(trust) == []
    assert trust.measures == FAULTLESS


@pytest.mark.parametrize("name", sorted(USED))
def test_every_sign_of_error_lowers_the_expected_accuracy(name: str) -> None:
    worse = {**FAULTLESS, name: 0.1 if name == "border" else 0.9}
    for line in (KNOWN_ERROR, ERROR):
        assert (line.error(worse) > line.error(FAULTLESS)) == (name in line.weights)


def test_the_interval_stays_between_0_and_1() -> None:
    worst = estimate({name: 1 - value for name, value in FAULTLESS.items()})
    assert (worst.expected_accuracy, worst.low) == (0, 0)
    assert 0 < worst.high < 1


def test_the_status_says_how_many_images_are_expected_to_be_wrong() -> None:
    at_border = (DOUBTFUL - ERROR.base) / ERROR.weights["border"]
    assert doubts(estimate({**FAULTLESS, "border": at_border - 0.001})) == []
    (doubtful,) = doubts(estimate({**FAULTLESS, "border": at_border + 0.001}))
    assert doubtful.status is Status.DOUBTFUL
    assert doubtful.found.startswith(f"about {100 * DOUBTFUL:.0f} of 100 images are expected to be")
    at_border = (WEAK - KNOWN_ERROR.base) / KNOWN_ERROR.weights["border"]
    (weak,) = doubts(estimate({**FAULTLESS, "border": at_border + 0.001}))
    assert weak.status is Status.WEAK_TRANSFER
    assert f"about {100 * WEAK:.0f} of 100 images of known classes" in weak.found
    assert "label about twenty target images" in weak.advice


def contradicted(agreement: float) -> dict[str, float]:
    return {**FAULTLESS, "knn_agreement": agreement, "prototype_agreement": agreement}


def test_a_model_that_the_source_contradicts_is_not_trusted() -> None:
    """Such as one on a target without any known class, which looks consistent otherwise."""
    agreeing, contradicting = contradicted(AGREEING), contradicted(AGREEING - 0.15)
    assert contradiction(agreeing) == 0
    assert contradiction(contradicting) == pytest.approx(0.6)
    assert contradiction(contradicted(0.3)) == 1
    assert doubts(estimate(agreeing)) == []
    trust = estimate(contradicting)
    assert trust.expected_accuracy == pytest.approx(0.4)
    (weak,) = doubts(trust)
    assert weak.status is Status.WEAK_TRANSFER
    assert "or it holds hardly any image of a known class" in weak.found


def test_a_model_that_the_source_contradicts_a_little_is_doubtful() -> None:
    (doubtful,) = doubts(estimate(contradicted(AGREEING - 0.05)))
    assert doubtful.status is Status.DOUBTFUL
