"""The state of a run after a stage, or inside one, as tensors and plain values only."""

import copy
import dataclasses
import io
import pickle
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor, nn

from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.discovery_io import pack, pack_findings, unpack, unpack_findings
from scda.adapt.discovery.findings import Finding
from scda.adapt.runtime import rng
from scda.adapt.training.loop import Progress
from scda.adapt.training.networks import Networks
from scda.models.errors import GateError
from scda.models.files import write_atomically

T = TypeVar("T")
KEPT = 2
PAUSED = "paused.pt"
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
    unknown_share: float  # of the target, predicted as no known class, 0 to 1
    findings: tuple[Finding, ...] = ()  # of the stage


@dataclass(frozen=True)
class Pause:
    """A stage that a signal stopped; the state before it is in its own checkpoint."""

    round: int  # under way
    networks: Networks
    discovery: Discovery | None
    progress: Progress
    returns: int  # to the state before the stage, so far
    generator: Tensor  # its state before the first step: the sampler's place follows from the steps


def save(folder: Path, state: State, generator: Generator) -> None:
    """Write a checkpoint and drop all but the last two.

    Between stages there is no optimiser and no sampler: each stage starts new ones.
    """
    fields = {
        **_fields(state),
        "unknown_share": state.unknown_share,
        "findings": pack_findings(state.findings),
        "generator": generator.get_state(),
    }
    _write(folder / f"round-{state.round:04d}.pt", fields)
    torn = folder.glob(".*.pt.*")  # what a kill left half-written
    for old in (*_newest_first(folder)[KEPT:], *torn, folder / PAUSED):
        old.unlink(missing_ok=True)


def save_pause(folder: Path, pause: Pause) -> None:
    """Write what a stage needs to go on inside it."""
    fields = {
        **_fields(pause),
        "progress": dataclasses.asdict(pause.progress),
        "returns": pause.returns,
        "generator": pause.generator,
    }
    _write(folder / PAUSED, fields)


def load(folder: Path, form: Networks, generator: Generator) -> State | None:
    """Return the newest checkpoint that can be read, and set all random generators to it.

    Args:
        folder: The run's checkpoints.
        form: Of F; a copy gets the weights, and a C of its own.
        generator: Of the batches.

    Raises:
        GateError: If there are checkpoints and none fits this model.
    """

    def state_of(fields: dict[str, Any]) -> State:
        state = State(
            fields["round"],
            _networks(fields, form),
            unpack(fields["discovery"]),
            fields["unknown_share"],
            unpack_findings(fields["findings"]),
        )
        generator.set_state(fields["generator"])
        return state

    paths = _newest_first(folder)
    for path in paths:
        if state := _read(path, state_of):
            return state
    if paths:
        raise GateError(f"{folder}: no checkpoint can be read; start again with --overwrite")
    return None


def load_pause(folder: Path, form: Networks, round_number: int) -> Pause | None:
    """Return the pause of this stage, if there is one, and set all random generators to it.

    One that cannot be read costs no more than the stage.

    Args:
        folder: The run's checkpoints.
        form: Of F; a copy gets the weights, and a C of its own.
        round_number: Of the stage that comes next.
    """

    def pause_of(fields: dict[str, Any]) -> Pause | None:
        if fields["round"] != round_number:  # of a stage that was finished since
            return None
        return Pause(
            fields["round"],
            _networks(fields, form),
            unpack(fields["discovery"]),
            Progress(**fields["progress"]),
            fields["returns"],
            fields["generator"],
        )

    return _read(folder / PAUSED, pause_of)


def _write(path: Path, fields: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    torch.save({**fields, "random": rng.capture()}, buffer)
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, buffer.getvalue())


def _newest_first(folder: Path) -> list[Path]:
    # By number: as text, round 10,000 would come before round 9,999.
    paths = [path for path in folder.glob("round-*.pt") if path.stem[6:].isdecimal()]
    return sorted(paths, key=lambda path: int(path.stem[6:]), reverse=True)


def _read(path: Path, read: Callable[[dict[str, Any]], T]) -> T | None:
    """Return what `read` makes of a file's fields; None where it is damaged or of another model."""
    try:
        with zipfile.ZipFile(path) as archive:  # torch itself does not look at the checksums
            if archive.testzip() is not None:
                raise zipfile.BadZipFile(path.name)
        fields = torch.load(path, map_location="cpu", weights_only=True)
        found = read(fields)
        if found is not None:
            rng.restore(fields["random"])
    except _READ_ERRORS:
        return None
    return found


def _fields(of: State | Pause) -> dict[str, Any]:
    return {
        "round": of.round,
        "head": of.networks.head.state_dict(),
        "classifier": of.networks.classifier.state_dict(),
        "backbone": of.networks.backbone.state_dict(),  # empty where it does not learn
        "discovery": pack(of.discovery),
    }


def _networks(fields: dict[str, Any], form: Networks) -> Networks:
    outputs, width = fields["classifier"]["weight"].shape
    classifier = nn.Linear(width, outputs).to(form.device)
    networks = dataclasses.replace(copy.deepcopy(form), classifier=classifier)
    for part in ("head", "classifier", "backbone"):
        getattr(networks, part).load_state_dict(fields[part])
    return networks
