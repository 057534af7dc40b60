"""The state of a run between two stages, as tensors and plain values only."""

import io
import json
import pickle
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, nn

from scda.adapt.discover import Candidates, Discovery
from scda.adapt.train import Networks
from scda.models.errors import GateError
from scda.models.files import write_atomically

KEPT = 2
_READ_ERRORS = (
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    zlib.error,
)  # what damaged bytes were seen to raise, or may


@dataclass(frozen=True)
class State:
    """Where a run stands: `round` stages after pre-training are done."""

    round: int
    networks: Networks
    discovery: Discovery | None


def save(folder: Path, state: State, generator: Generator) -> None:
    """Write a checkpoint and drop all but the last two.

    Between stages there is no optimiser and no sampler: each stage starts new ones.
    """
    fields: dict[str, Any] = {
        "round": state.round,
        "head": state.networks.head.state_dict(),
        "classifier": state.networks.classifier.state_dict(),
        "backbone": state.networks.backbone.state_dict(),  # empty where it does not learn
        "discovery": _discovery_fields(state.discovery),
        "generator": generator.get_state(),
        "torch": torch.get_rng_state(),
    }
    buffer = io.BytesIO()
    torch.save(fields, buffer)
    folder.mkdir(exist_ok=True)
    write_atomically(folder / f"round-{state.round:04d}.pt", buffer.getvalue())
    for old in sorted(folder.glob("round-*.pt"))[:-KEPT]:
        old.unlink()


def load(
    folder: Path, head: nn.Module, generator: Generator, *, backbone: nn.Module | None = None
) -> State | None:
    """Return the newest checkpoint that can be read, and set both random generators to it.

    Args:
        folder: The run's checkpoints.
        head: F's trained part, whose weights are replaced.
        generator: Of the batches.
        backbone: Of F where it learns; its weights are replaced by what it has learnt.

    Raises:
        GateError: If there are checkpoints and none fits this model.
    """
    paths = sorted(folder.glob("round-*.pt"), reverse=True)
    for path in paths:
        try:
            return _read(path, head, generator, backbone or nn.Identity())
        except _READ_ERRORS:
            continue
    if paths:
        raise GateError(f"{folder}: no checkpoint can be read; start again with --overwrite")
    return None


def _read(path: Path, head: nn.Module, generator: Generator, backbone: nn.Module) -> State:
    with zipfile.ZipFile(path) as archive:  # torch itself does not look at the checksums
        if archive.testzip() is not None:
            raise zipfile.BadZipFile(path.name)
    fields = torch.load(path, map_location="cpu", weights_only=True)
    head.load_state_dict(fields["head"])
    weight = fields["classifier"]["weight"]
    classifier = nn.Linear(weight.shape[1], weight.shape[0])
    classifier.load_state_dict(fields["classifier"])
    discovery = _discovery(fields["discovery"])
    backbone.load_state_dict(fields["backbone"])
    generator.set_state(fields["generator"])
    torch.set_rng_state(fields["torch"])
    return State(fields["round"], Networks(head, classifier, backbone), discovery)


def _discovery_fields(discovery: Discovery | None) -> dict[str, Any] | None:
    if discovery is None:
        return None
    candidates = discovery.candidates
    return {
        "k_star": discovery.k_star,
        "known": torch.from_numpy(candidates.known),
        "known_labels": torch.from_numpy(candidates.known_labels),
        "implicit": torch.from_numpy(candidates.implicit),
        "implicit_labels": torch.from_numpy(discovery.implicit_labels),
        "suspects": torch.from_numpy(discovery.suspects),
        "notes": json.dumps(discovery.notes),
        "verdict": discovery.verdict,
        "k_scda": discovery.k_scda,
        "k_graph": discovery.k_graph,
        "k_path": discovery.k_path,
    }


def _discovery(fields: dict[str, Any] | None) -> Discovery | None:
    if fields is None:
        return None
    known, known_labels, implicit, implicit_labels, suspects = (
        np.asarray(fields[name].numpy())
        for name in ("known", "known_labels", "implicit", "implicit_labels", "suspects")
    )
    return Discovery(
        fields["k_star"],
        Candidates(known, known_labels, implicit),
        implicit_labels,
        None,
        json.loads(fields["notes"]),
        verdict=fields["verdict"],
        suspects=suspects,
        k_scda=fields["k_scda"],
        k_graph=fields["k_graph"],
        k_path=tuple(fields["k_path"]),
    )
