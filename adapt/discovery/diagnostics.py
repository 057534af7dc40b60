"""Diagnostics of a run: what its user should know before relying on the result."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.trust.estimate import doubts
from scda.models.index import Ids
from scda.models.trust import Trust

# Chosen on Office-31 P1 and its treated images (benchmarks/results/stress.md).
_MAX_NEW_SHARE = 0.9  # share of the target; above it, the known classes are not recognised
_K_RATIO = 2  # ratio of two estimates of k* from which they disagree
_K_STEP = 1.5  # ratio of k* between two rounds above which k* has not settled
_MIN_SHARE, _MAX_SHARE = 0.01, 0.99  # predicted as new; outside, one player has won the game
_SHOWN_ROUNDS = 5
_SHOWN_NAMES = 5


def diagnose(
    predicted: Ids, num_known: int, trust: Trust, discovery: Discovery | None
) -> list[Finding]:
    """Return a finding for everything at the end of a run that is not as expected.

    Args:
        predicted: Predictions of the last round, (M,); K and more are new.
        num_known: Number of known classes, K.
        trust: How accurate the run is expected to be.
        discovery: Discovery of the last round; None without a round.
    """
    return [
        *_collapse(predicted, num_known),
        *doubts(trust),
        *(_doubts_about_k(discovery) if discovery else []),
    ]


def one_sided_game(before: float, after: float, discovery: Discovery) -> list[Finding]:
    """Return a finding where one player of the adversarial game won for a whole round.

    Args:
        before: Share of the target predicted as new when the round began, 0 to 1.
        after: The same share at the end of the round.
        discovery: Discovery of the round. Where it holds no new class, a small share is no fault.
    """
    if max(before, after) < _MIN_SHARE and discovery.k_star > 0:
        found = f"less than {_MIN_SHARE:.0%} of the target was predicted as new for a whole round"
        advice = 'set fewer pretrain_steps and adversary = "sample" in --config, or use --novel no'
        return [Finding(Status.GAME_COLLAPSED, found, advice)]
    if min(before, after) > _MAX_SHARE:
        found = f"more than {_MAX_SHARE:.0%} of the target was predicted as new for a whole round"
        advice = (
            "check that it is the right target, then set more pretrain_steps in --config or use "
            "a smaller --lr"
        )
        return [Finding(Status.GAME_COLLAPSED, found, advice)]
    return []


def empty_classes(predicted: Ids, names: Sequence[str], absent: Ids) -> list[Finding]:
    """Return findings that name the classes which the target seems to lack, if there are any.

    Args:
        predicted: Output index of every target image, (N,).
        names: Names of the outputs.
        absent: Outputs whose images do not resemble the class.
    """
    sizes, findings = np.bincount(predicted, minlength=len(names)), []
    if empty := [name for name, size in zip(names, sizes, strict=True) if not size]:
        found = f"no target image is predicted as {_listed(empty)}"
        advice = "check whether the target holds such images"
        findings.append(Finding(Status.EMPTY_CLASS, found, advice))
    if unlike := [names[label] for label in absent]:
        found = f"the images predicted as {_listed(unlike)} hardly resemble those of the source"
        advice = "check in the report whether the target holds such images"
        findings.append(Finding(Status.EMPTY_CLASS, found, advice))
    return findings


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return f"{', '.join(names[:_SHOWN_NAMES])}{more}"


def _collapse(predicted: Ids, num_known: int) -> list[Finding]:
    share = float((predicted >= num_known).mean())
    classes = len(np.unique(predicted[predicted < num_known]))
    if share <= _MAX_NEW_SHARE and 2 * classes >= num_known:
        return []
    found = (
        f"{share:.0%} of the target is predicted as new, and {classes} of {num_known} known "
        f"classes {'is' if classes == 1 else 'are'} found"
    )
    advice = "check that it is the right target; if it is, label some of its images"
    return [Finding(Status.COLLAPSED, found, advice)]


def _doubts_about_k(discovery: Discovery) -> list[Finding]:
    doubts, path = [], discovery.k_path
    votes = discovery.votes
    if votes and not _any_two_agree(sorted(votes.values())):
        counts = " and ".join(f"{k} by {name}" for name, k in votes.items())
        found = f"the estimates of k* differ: {counts}"
        advice = "inspect the discovered classes, then set --k"
        doubts.append(Finding(Status.K_UNSURE, found, advice))
    if len(path) > 1 and max(path[-2:]) > _K_STEP * min(path[-2:]):
        found = f"k* was {', '.join(map(str, path[-_SHOWN_ROUNDS:]))} in the last rounds"
        doubts.append(Finding(Status.K_UNSTABLE, found, "use more --rounds, or set --k"))
    return doubts


def _any_two_agree(counts: Sequence[int]) -> bool:
    """Return whether two neighbours among rising counts differ by less than a factor of two."""
    return any(more < _K_RATIO * less for less, more in pairwise(counts))
