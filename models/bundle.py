"""The bundle: the folder that serving reads, written atomically and verified by checksums.

It holds no pickle, every path is relative, and only names.json ever changes.
"""

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from scda.models import fields
from scda.models.errors import GateError, UsageError
from scda.models.files import atomic_folder, is_inside, put_back
from scda.models.preprocess import Preprocessing
from scda.models.previous import Previous
from scda.models.quantisation import Quantisation
from scda.models.run_facts import check_facts
from scda.models.target_figures import TargetFigures
from scda.models.trust import Calibration, ClassTrust, Trust

SCHEMA_VERSION = 1
MANIFEST, NAMES = "bundle.json", "names.json"
MODEL, CLUSTERS, PARITY = "model.onnx", "clusters.faiss", "parity.npz"
NEIGHBOURS, NEIGHBOUR_ROWS = "neighbours.faiss", "neighbours.parquet"
MEMORY = "memory.npz"  # missing in an older bundle
REQUIRED = (MODEL, CLUSTERS, PARITY)
OUTLIER_QUANTILE = "q99"  # of `ClassInfo.radius`: an image farther from every class is an outlier
# fields that older bundles of this schema lack
_LATER = ("trust", "on_target", "calibration", "previous", "quantisation")
_DAMAGED = (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError)


@dataclass(frozen=True, kw_only=True)
class ClassInfo:
    """One output of the model."""

    class_id: str  # known-000 ..., discovered-000 ...
    label: str  # name of the class folder; the class id of a class that has no name
    kind: str  # known | discovered
    size: int  # number of target images predicted as the class
    mean_confidence: float  # mean over those images, 0 to 1
    radius: dict[str, float]  # quantiles of the distances of its members to the centroid
    nearest_known: str | None  # id of the closest known class; None for a known class
    exemplars: tuple[str, ...]  # paths in the bundle, most typical first
    trust: ClassTrust | None = None  # None for a known class, and in an older bundle

    @property
    def doubtful(self) -> bool:
        """Whether it is a discovered class that may be false or mixed."""
        return self.trust is not None and bool(self.trust.doubts)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The contents of bundle.json."""

    classes: tuple[ClassInfo, ...]  # in output order
    preprocessing: Preprocessing
    thresholds: dict[str, float]
    status: tuple[str, ...]  # `ok`, or the findings of the run
    files: dict[str, str]  # path → SHA-256 of every file except bundle.json and names.json
    run: dict[str, Any]  # config, versions, times, host; not part of the id
    trust: Trust | None = None  # None in a bundle written before there was an estimate
    on_target: TargetFigures | None = None  # None in an older bundle
    calibration: Calibration | None = None  # None in an older bundle
    previous: Previous | None = None  # None unless it was trained after another model
    quantisation: Quantisation | None = None  # None in a model of float32
    schema_version: int = SCHEMA_VERSION

    @property
    def id(self) -> str:
        """The first 16 hex digits of the SHA-256 of everything but the run."""
        contents = self._fields()
        del contents["run"]
        text = json.dumps(contents, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def precision(self) -> str:
        """Precision of the model's file: fp32 or int8."""
        return self.quantisation.precision if self.quantisation else "fp32"

    @property
    def class_ids(self) -> list[str]:
        """The class ids in output order."""
        return [info.class_id for info in self.classes]

    @property
    def num_known(self) -> int:
        """Number of known classes, K; they come first."""
        return sum(info.kind == "known" for info in self.classes)

    def to_json(self) -> dict[str, Any]:
        """Return the contents of bundle.json."""
        return {"id": self.id, **self._fields()}

    def _fields(self) -> dict[str, Any]:
        contents = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        contents["classes"] = [_present(dataclasses.asdict(info)) for info in self.classes]
        contents["preprocessing"] = self.preprocessing.to_json()
        for name in _LATER:
            value = getattr(self, name)
            contents[name] = value and _known(dataclasses.asdict(value))
        return _present(contents)


def write_bundle(
    draft: Path, folder: Path, *, names: Mapping[str, Any] | None = None, **contents: Any
) -> Manifest:
    """Turn the files in `draft` into a bundle at `folder`, replacing what was there.

    Args:
        draft: Folder with every file of the bundle except bundle.json.
        folder: Destination of the bundle.
        names: Contents of names.json without the model's id; None writes no such file.
        contents: `Manifest`'s fields without `files` and `schema_version`.
    """
    manifest = Manifest(files=checksums(draft), **contents)
    with atomic_folder(folder) as new:
        for path in draft.iterdir():
            shutil.move(path, new / path.name)
        text = json.dumps(manifest.to_json(), indent=1, ensure_ascii=True, allow_nan=False)
        (new / MANIFEST).write_text(text, "utf-8")
        if names is not None:
            text = json.dumps({**names, "model_id": manifest.id}, indent=1)
            (new / NAMES).write_text(text, "utf-8")
    return manifest


def checksums(folder: Path) -> dict[str, str]:
    """Return path → SHA-256 of every file under `folder` except bundle.json and names.json."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): file_sha256(path)
        for path in paths
        if path.relative_to(folder).as_posix() not in (MANIFEST, NAMES)
    }


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def open_verified(folder: Path, manifest: Manifest, name: str) -> Iterator[BinaryIO]:
    """Open a file of a bundle after comparing its checksum; what is read is what was compared.

    A file that takes its place meanwhile is not seen, and one that is rewritten is noticed.

    Args:
        folder: Folder of the bundle.
        manifest: Its manifest.
        name: Path of the file in the bundle.

    Raises:
        GateError: If the file is missing, damaged, or rewritten before the block ends.
    """
    try:
        file = (folder / name).open("rb")
    except OSError as error:
        raise GateError(f"{folder}: {name}: cannot read: {error.strerror}") from None
    with file:
        before = _stamp(file)
        if hashlib.file_digest(file, "sha256").hexdigest() != manifest.files[name]:
            raise GateError(f"{folder}: {name} is damaged (checksum differs)")
        file.seek(0)
        yield file
        if _stamp(file) != before:
            raise GateError(f"{folder}: {name} was rewritten while it was read; try again")


def _stamp(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_mtime_ns, status.st_size


def bundle_folder(path: Path) -> Path:
    """Return the folder of a bundle: `path`, or its `bundle/` if `path` is a run.

    Raises:
        UsageError: If `path` is neither.
        GateError: If bundle.json is missing beside a model.
    """
    for folder in (path, path / "bundle"):
        put_back(folder)
        if (folder / MANIFEST).is_file():
            return folder
    if not path.exists():
        raise UsageError(f"{path}: no such folder; expected a bundle or a run")
    # A folder with a model in it is a bundle that lost its manifest, not a wrong path.
    damaged = any((folder / MODEL).is_file() for folder in (path, path / "bundle"))
    error = GateError if damaged else UsageError
    raise error(f"{path}: no {MANIFEST} found; expected a bundle or a finished run")


def read_manifest(folder: Path, *, checked: bool = True) -> Manifest:
    """Read bundle.json.

    Args:
        folder: Folder of the bundle.
        checked: Whether to compare every file with its checksum.

    Raises:
        GateError: If the bundle is damaged, incomplete or of another schema.
    """
    manifest = _parse(folder / MANIFEST)
    _check_paths(folder, manifest)
    if checked:
        _check_sums(folder, manifest)
    return manifest


def _parse(path: Path) -> Manifest:
    try:
        stored = json.loads(path.read_bytes())
        version, stored_id = stored["schema_version"], stored["id"]
    except _DAMAGED as error:
        raise GateError(f"{path}: damaged: {error!r}") from None
    if version != SCHEMA_VERSION:
        raise GateError(f"{path}: schema {version}, this version of scda reads {SCHEMA_VERSION}")
    try:
        manifest = _manifest(stored)
        is_same = manifest.id == stored_id
    except GateError as error:
        raise GateError(f"{path}: {error}") from None
    except TypeError as error:
        raise GateError(f"{path}: damaged: {error}") from None
    except _DAMAGED as error:
        raise GateError(f"{path}: damaged: {error!r}") from None
    if not is_same:
        raise GateError(f"{path}: damaged (its id is {stored_id}, its contents give {manifest.id})")
    _check_classes(path, manifest.classes)
    return manifest


def _manifest(stored: dict[str, Any]) -> Manifest:
    fields.check_names(stored, {"id", *_names(Manifest)})
    files = fields.table(stored, "files")
    trust, figures, calibration, previous, quantisation = (
        fields.optional_table(stored, name) for name in _LATER
    )
    return Manifest(
        classes=tuple(map(_class_info, fields.tables(stored, "classes"))),
        preprocessing=Preprocessing.from_json(fields.table(stored, "preprocessing")),
        thresholds=fields.numbers(stored, "thresholds"),
        status=fields.texts(stored, "status"),
        files={name: fields.text(files, name) for name in files},
        run=check_facts(fields.table(stored, "run")),
        trust=None if trust is None else Trust.from_json(trust),
        on_target=None if figures is None else TargetFigures.from_json(figures),
        calibration=None if calibration is None else Calibration.from_json(calibration),
        previous=None if previous is None else Previous.from_json(previous),
        quantisation=None if quantisation is None else Quantisation.from_json(quantisation),
    )


def _check_classes(path: Path, classes: tuple[ClassInfo, ...]) -> None:
    ids, kinds = [info.class_id for info in classes], [info.kind for info in classes]
    num_known = kinds.count("known")
    known, others = ids[:num_known], kinds[num_known:]
    found = {
        "no known class": not known,
        "classes that are not known or discovered, in this order": set(others) - {"discovered"},
        "two classes of one id": len(set(ids)) < len(ids),
        "a nearest known class that is none": {i.nearest_known for i in classes} - {None, *known},
        f"no radius {OUTLIER_QUANTILE}": [i for i in classes if OUTLIER_QUANTILE not in i.radius],
    }
    if strange := next((what for what, is_so in found.items() if is_so), ""):
        raise GateError(f"{path}: damaged: found {strange}")


def _check_paths(folder: Path, manifest: Manifest) -> None:
    missing = [name for name in (*REQUIRED, *manifest.files) if not (folder / name).is_file()]
    if missing:
        raise GateError(f"{folder}: {missing[0]} is missing")
    exemplars = [path for info in manifest.classes for path in info.exemplars]
    unlisted = [name for name in (*REQUIRED, *exemplars) if name not in manifest.files]
    if unlisted:
        raise GateError(f"{folder}: {MANIFEST} does not list {unlisted[0]}")
    # Exemplars are served; a bundle from elsewhere must not reach out of its folder.
    outside = [name for name in manifest.files if not is_inside(name)]
    if outside:
        raise GateError(
            f"{folder}: {MANIFEST} lists {outside[0]}, expected a path inside the bundle"
        )


def _check_sums(folder: Path, manifest: Manifest) -> None:
    for name, expected in manifest.files.items():
        try:
            found = file_sha256(folder / name)
        except OSError as error:
            raise GateError(f"{folder}: {name}: cannot read: {error.strerror}") from None
        if found != expected:
            raise GateError(f"{folder}: {name} is damaged (checksum differs)")


def _class_info(entry: dict[str, Any]) -> ClassInfo:
    fields.check_names(entry, _names(ClassInfo))
    trust = fields.optional_table(entry, "trust")
    nearest = entry.get("nearest_known")
    return ClassInfo(
        class_id=fields.text(entry, "class_id"),
        label=fields.text(entry, "label"),
        kind=fields.text(entry, "kind"),
        size=fields.count(entry, "size"),
        mean_confidence=fields.number(entry, "mean_confidence"),
        radius=fields.numbers(entry, "radius"),
        nearest_known=None if nearest is None else fields.text(entry, "nearest_known"),
        exemplars=fields.texts(entry, "exemplars"),
        trust=None if trust is None else ClassTrust.from_json(trust),
    )


def _names(kind: type[Manifest | ClassInfo]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def _known(contents: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None, since an older bundle lacks them."""
    return {name: value for name, value in contents.items() if value is not None}


def _present(contents: dict[str, Any]) -> dict[str, Any]:
    """Return the fields without those it lacks: the id of an old bundle is of its own fields."""
    lacking = {name for name in _LATER if contents.get(name) is None}
    return {name: value for name, value in contents.items() if name not in lacking}
