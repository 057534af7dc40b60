"""No two statuses of a run contradict each other, and each states what did not suffice."""

import numpy as np
import pytest

from scda.adapt.discovery.findings import Finding, Status, consistent, statuses
from scda.adapt.discovery.novelty.orphans import LEAST_EVIDENCE, Orphans


def finding(status: Status) -> Finding:
    return Finding(status, "found", "advice")


@pytest.mark.parametrize(
    "status",
    ["k unsure", "unstable k", "k at its bound", "fewer than asked for", "game collapsed"],
)
def test_where_nothing_is_new_no_new_class_is_doubted(status: str) -> None:
    doubt, other = finding(Status(status)), finding(Status.WEAK_TRANSFER)
    verdict = finding(Status.NOTHING_NEW)
    assert consistent([verdict, doubt, other]) == [verdict, other]
    assert consistent([doubt, verdict]) == [verdict]  # in any order
    assert consistent([doubt, other]) == [doubt, other]
    assert statuses(consistent([verdict, doubt])) == ("nothing new found",)


@pytest.mark.parametrize(
    ("evidence", "total", "said"),
    [
        ([4.0, 4.0, -1.0], LEAST_EVIDENCE + 1, "2 target images look new (expected at least 3 in"),
        ([1.0, -1.0, -1.0], 0.5, f"is 0.50 (expected at least {LEAST_EVIDENCE})"),
        ([-1.0, -1.0, -1.0], 0.0, f"is 0.00 (expected at least {LEAST_EVIDENCE})"),
    ],
)
def test_the_verdict_names_what_did_not_suffice(
    evidence: list[float], total: float, said: str
) -> None:
    posterior = np.full((3, 2), 0.5, np.float32)
    values = np.array(evidence, np.float32)
    assert said in Orphans(posterior, values, np.zeros(3, bool), total).why_not
