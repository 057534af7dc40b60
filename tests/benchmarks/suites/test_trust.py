from typing import Any

import numpy as np
import pytest

from benchmarks.suites import trust
from scda.models.errors import UsageError

TRUE = {"nearest_called_known": 0.6, "border": 1.5, "prototype_agreement": 0.2}
BASE = 0.05


def records(families: str = "abc", *, each: int = 12, noise: float = 0.0) -> list[dict[str, Any]]:
    """Return records whose errors are a line of their measures."""
    rng, made = np.random.default_rng(0), []
    for family in families:
        for number in range(each):
            signs = {name: float(rng.uniform(0, 0.3)) for name in TRUE}
            measures = {n: value if n == "border" else 1 - value for n, value in signs.items()}
            measures["landing_agreement"] = measures["prototype_agreement"]
            measures["knn_agreement"] = 1.0
            error = BASE + sum(TRUE[name] * value for name, value in signs.items())
            right = float(np.clip(100 * (1 - error + rng.normal(0, noise)), 0, 100))
            fields = {"task": f"{family}-{number}", "family": family, "kind": "half", "seed": 0}
            figures = {"hos": right, "os_star": right, "known_accuracy": right}
            made.append({**fields, **figures, "status": ["ok"], "measures": measures})
    return made


def test_a_line_is_found_again() -> None:
    constants = trust.fit(records())
    assert constants.known_error.base == pytest.approx(BASE, abs=0.01)
    assert constants.known_error.weights == pytest.approx(TRUE, abs=0.03)
    assert constants.width < 0.02


def test_weights_are_never_negative() -> None:
    turned = [{**record, "known_accuracy": 100 - record["known_accuracy"]} for record in records()]
    assert min(trust.fit(turned).known_error.weights.values()) == 0


def test_one_in_ten_good_runs_is_doubted() -> None:
    made = records(noise=0.02)
    doubtful = trust.fit(made).doubtful
    good = [record for record in made if record["hos"] >= 85]
    errors = [trust.fit(made).error.error(record["measures"]) for record in good]
    assert np.mean(np.array(errors) > doubtful) == pytest.approx(0.1, abs=0.1)


def test_a_family_is_judged_by_constants_of_the_others() -> None:
    made = records()
    spoilt = [
        {**record, "known_accuracy": 0.0} if record["family"] == "a" else record for record in made
    ]
    of_a = [judged for judged in trust.judge(spoilt) if judged.record["family"] == "a"]
    clean = [judged for judged in trust.judge(made) if judged.record["family"] == "a"]
    assert [j.known_error for j in of_a] == [j.known_error for j in clean]
    assert clean[0].known_miss < 0.01
    assert of_a[0].known_miss > 0.3


def test_a_status_that_another_finding_gave_counts() -> None:
    (judged,) = [j for j in trust.judge(records()) if j.record["task"] == "a-0"]
    assert not judged.is_doubted(2.0)
    judged.record["status"] = ["doubtful"]  # trust's own is decided anew
    assert not judged.is_doubted(2.0)
    judged.record["status"] = ["k unsure"]
    assert judged.is_doubted(2.0)


def test_the_report_prints_the_constants() -> None:
    text = trust.report(records())
    assert "| a | 12 | 0.0 | 1.00 |" in text
    assert "| all | 36 |" in text
    assert "KNOWN_ERROR = Line(0.05" in text
    assert '"border": 1.5' in text
    assert "doubtful from" in text


def test_old_records_and_a_single_family_are_refused() -> None:
    with pytest.raises(UsageError, match="two or more families, found 1"):
        trust.report(records("a"))
    old = [{name: v for name, v in r.items() if name != "measures"} for r in records()]
    with pytest.raises(UsageError, match="a-0: the record holds no measures"):
        trust.report(old)
