"""A discovery as a checkpoint holds it."""

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from scda.adapt.discovery.counting.estimate import Curve
from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.selection import Candidates


def pack_findings(findings: Iterable[Finding]) -> str:
    """Return findings as JSON."""
    return json.dumps([dataclasses.asdict(finding) for finding in findings])


def unpack_findings(text: str) -> tuple[Finding, ...]:
    """Return the findings that `pack_findings` was given."""
    return tuple(
        Finding(Status(fields["status"]), fields["found"], fields["advice"])
        for fields in json.loads(text)
    )


def pack(discovery: Discovery | None) -> dict[str, Any] | None:
    """Return all of a discovery as tensors and plain values."""
    if discovery is None:
        return None
    candidates = discovery.candidates
    return {
        "k_star": discovery.k_star,
        "known": torch.from_numpy(candidates.known),
        "known_labels": torch.from_numpy(candidates.known_labels),
        "implicit": torch.from_numpy(candidates.implicit),
        "implicit_labels": torch.from_numpy(discovery.implicit_labels),
        "curve": json.dumps(discovery.curve and dataclasses.asdict(discovery.curve)),
        "findings": pack_findings(discovery.findings),
        "verdict": pack_findings((discovery.verdict,) if discovery.verdict else ()),
        "votes": discovery.votes,
        "k_path": discovery.k_path,
    }


def unpack(fields: dict[str, Any] | None) -> Discovery | None:
    """Return what `pack` was given."""
    if fields is None:
        return None
    known, known_labels, implicit, implicit_labels = (
        np.asarray(fields[name].numpy())
        for name in ("known", "known_labels", "implicit", "implicit_labels")
    )
    curve = json.loads(fields["curve"])
    return Discovery(
        fields["k_star"],
        Candidates(known, known_labels, implicit),
        implicit_labels,
        curve and Curve(**curve),
        unpack_findings(fields["findings"]),
        verdict=next(iter(unpack_findings(fields["verdict"])), None),
        votes=dict(fields["votes"]),
        k_path=tuple(fields["k_path"]),
    )
