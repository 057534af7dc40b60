"""Checkpoints: a `RunState` as a file of tensors and plain values."""

import copy
import dataclasses
import io
import pickle
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from scda.adapt.discovery.discovery_io import pack, pack_findings, unpack, unpack_findings
from scda.adapt.runtime import rng
from scda.adapt.training.loop import Progress
from scda.adapt.training.networks import Networks
from scda.adapt.training.state import RunState
from scda.models.errors import GateError
from scda.models.files import write_atomically

LAYOUT = 4  # version of the fields; a checkpoint with another one is refused
KEPT = 2
PAUSED = "paused.pt"
_MODULES = ("head", "classifier", "backbone")  # the backbone has no weights unless it learns
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
)  # errors that damaged bytes raise, or may raise


def save(folder: Path, state: RunState) -> None:
    """Write a checkpoint, atomically.

    The checkpoint of a finished stage replaces the one inside that stage and all but the last two.

    Args:
        folder: Folder of the run's checkpoints.
        state: State after a stage, or inside one.
    """
    name = PAUSED if state.progress else f"round-{state.stage:04d}.pt"
    buffer = io.BytesIO()
    torch.save(_to_fields(state), buffer)
    folder.mkdir(exist_ok=True)
    write_atomically(folder / name, buffer.getvalue())
    if not state.progress:
        incomplete = folder.glob(".*.pt.*")  # left by a kill
        for old in (*_newest_first(folder)[KEPT:], *incomplete, folder / PAUSED):
            old.unlink(missing_ok=True)


def load(folder: Path, like: Networks) -> RunState | None:
    """Return the newest finished stage that can be read, and restore all random generators to it.

    Args:
        folder: Folder of the run's checkpoints.
        like: Networks of the same architecture; a copy of them gets the weights and its own C.

    Returns:
        The state; None if the folder holds no checkpoint of a finished stage.

    Raises:
        GateError: If no checkpoint can be read for this model, or one has another layout.
    """
    paths = _newest_first(folder)
    if state := _first_readable(paths, like):
        return state
    if paths:
        raise GateError(
            f"{folder}: no checkpoint can be read; rerun with --overwrite to start again"
        )
    return None


def load_paused(folder: Path, like: Networks, stage: int) -> RunState | None:
    """Return the state inside a stage, and restore all random generators to it.

    An unreadable file costs no more than the steps of that stage.

    Args:
        folder: Folder of the run's checkpoints.
        like: Networks of the same architecture; a copy of them gets the weights and its own C.
        stage: Number of the stage that comes next.

    Returns:
        The state; None if the run was not stopped inside that stage.

    Raises:
        GateError: If the file has another layout.
    """
    return _first_readable([folder / PAUSED], like, stage)


def _newest_first(folder: Path) -> list[Path]:
    # By number: as text, round 10,000 would come before round 9,999.
    paths = [path for path in folder.glob("round-*.pt") if path.stem[6:].isdecimal()]
    return sorted(paths, key=lambda path: int(path.stem[6:]), reverse=True)


def _first_readable(
    paths: Iterable[Path], like: Networks, stage: int | None = None
) -> RunState | None:
    """Return the first state that is not damaged and fits the model and, if given, the stage."""
    for path in paths:
        try:
            fields = _read(path)
            if stage in (None, fields["stage"]):
                state = _from_fields(fields, like)
                rng.restore(fields["random"])
                return state
        except _READ_ERRORS:
            continue
    return None


def _read(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:  # torch itself does not verify the checksums
        if archive.testzip() is not None:
            raise zipfile.BadZipFile(path.name)
    fields: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    if fields.get("layout") != LAYOUT:
        raise GateError(
            f"{path}: a checkpoint with an incompatible layout, of another version of scda; finish "
            "the run with that version, or rerun with --overwrite to start again"
        )
    return fields


def _to_fields(state: RunState) -> dict[str, Any]:
    modules = {name: getattr(state.networks, name).state_dict() for name in _MODULES}
    modules["others"] = [pair.state_dict() for pair in state.networks.others]
    return {
        **vars(state),
        "layout": LAYOUT,
        "networks": modules,
        "discovery": pack(state.discovery),
        "progress": state.progress and dataclasses.asdict(state.progress),
        "findings": pack_findings(state.findings),
        "random": rng.capture(),
    }


def _from_fields(fields: dict[str, Any], like: Networks) -> RunState:
    values = {field.name: fields[field.name] for field in dataclasses.fields(RunState)}
    values["networks"] = _networks(fields["networks"], like)
    values["discovery"] = unpack(fields["discovery"])
    values["progress"] = fields["progress"] and Progress(**fields["progress"])
    values["findings"] = unpack_findings(fields["findings"])
    return RunState(**values)


def _networks(modules: dict[str, Any], like: Networks) -> Networks:
    outputs, width = modules["classifier"]["weight"].shape
    classifier = nn.Linear(width, outputs).to(like.device)
    networks = dataclasses.replace(copy.deepcopy(like), classifier=classifier)
    for name in _MODULES:
        getattr(networks, name).load_state_dict(modules[name])
    for weights in modules["others"]:
        pair = nn.Sequential(networks.head, networks.classifier)
        networks.others.append(copy.deepcopy(pair))
        networks.others[-1].load_state_dict(weights)
    return networks
