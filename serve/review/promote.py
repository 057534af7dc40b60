"""Promote reviewed, confident target images to class folders, the source of the next training."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scda.models.bundle import Manifest, file_sha256, read_manifest
from scda.models.errors import DataError, UsageError
from scda.models.files import atomic_folder
from scda.models.folders import visible_folders, walk
from scda.models.names import Names, folder_label, read_names
from scda.models.naming import Naming
from scda.models.places import check_outside, training_folder
from scda.serve.files.class_folders import ClassFolders, folder_names
from scda.serve.files.target_images import TargetFolder, read_target_images
from scda.serve.labelling.summary import by_label

ROWS = "manifest.csv"
COLUMNS = ("placed_at", "origin", "path", "class_id", "label", "confidence")


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """The result of one promotion."""

    counts: dict[str, int]  # images per class, as in `by_label`
    unnamed: int  # images left out because their class has no name yet or is dropped
    unsure: int  # images left out because the model is not confident enough
    missing: int  # images that are no longer in the target folder
    changed: int  # images whose file has another content than at the training

    def lines(self) -> list[str]:
        """Return the result as lines of text."""
        return [
            *(f"{count:8}  {label}" for label, count in self.counts.items()),
            f"{self.unsure:8}  left out: not confident enough",
            f"{self.unnamed:8}  left out: the class is dropped or has no name yet",
            *(
                [f"{self.missing:8}  left out: no longer in the target folder"]
                if self.missing
                else []
            ),
            *(
                [f"{self.changed:8}  left out: the file has changed since the training"]
                if self.changed
                else []
            ),
        ]


@dataclass(frozen=True)
class _Image:
    """One image that may be promoted."""

    origin: str  # target | source
    root: Path
    path: str  # relative to `root`
    class_id: str
    confidence: float  # 0 to 1; 1 for a labelled source image
    sha256: str = ""  # digest that the file must have; empty for any

    @property
    def file(self) -> Path:
        """The file of the image."""
        return self.root / self.path


def promote(
    bundle: Path,
    out: Path,
    *,
    target: Path | None = None,
    source: Path | None = None,
    min_confidence: float = 0.5,
    mode: str = "copy",
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Promotion:
    """Write a class folder per known and per named class, and manifest.csv.

    The images are the target images of the training. Known classes, with the classes merged into
    them, count as reviewed; a discovered class counts once it has a name.

    Args:
        bundle: Folder of a bundle with neighbours, which hold the class of every target image.
        out: New folder; it is written completely or not at all.
        target: Folder of the target images; the folder used for training if None.
        source: Class folders whose images are added, under the current names of their classes. Any
            content is taken: a person labelled it, while a target image has a prediction, which
            holds for the content of the training alone.
        min_confidence: Lowest confidence of a promoted target image, 0 to 1.
        mode: How to place a file: copy, hardlink or symlink.
        on_progress: Called with the number of placed images and of all images.

    Raises:
        UsageError: If a path is wrong, or no discovered class has a name yet.
        DataError: If no image is reviewed, confident enough and still in the target folder.
        GateError: If the bundle is damaged or has no neighbours.
    """
    manifest = read_manifest(bundle)
    names = read_names(bundle, manifest)
    labels = _reviewed(manifest, names)
    images = _of_target(bundle, target or Path(manifest.run.get("target") or "?"), names)
    targets = [*([target] if target else []), *training_folder(manifest.run, "target")]
    sources = [*([source] if source else []), *training_folder(manifest.run, "source")]
    check_outside(out, targets, sources)
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out} exists already; expected a new folder")
    reviewed = [image for image in images if image.class_id in labels]
    sure = [image for image in reviewed if image.confidence >= min_confidence]
    found = [image for image in sure if image.file.is_file()]
    added = list(_of_source(source, manifest, names)) if source else []
    with atomic_folder(out, replace=False) as draft:
        placer, taken = _Placer(draft, out, labels, mode), list[_Image]()
        for done, image in enumerate([*found, *added], 1):
            if placer.place(image):
                taken.append(image)
            on_progress(done, len(found) + len(added))
        there = [image for image in taken if image.origin == "target"]
        if not there:
            raise DataError(
                f"none of the {len(images)} target images can be promoted: {len(reviewed)} have a "
                f"known or named class, {len(sure)} of these a confidence of at least "
                f"{min_confidence}, {len(found)} of these are in the target folder, and 0 of these "
                "have the content that they had at the training"
            )
        placer.finish()
    return Promotion(
        counts=by_label(Counter((image.class_id, labels[image.class_id]) for image in taken)),
        unnamed=len(images) - len(reviewed),
        unsure=len(reviewed) - len(sure),
        missing=len(sure) - len(found),
        changed=len(found) - len(there),
    )


def _reviewed(manifest: Manifest, names: Names) -> dict[str, str]:
    """Return class id → label of every reviewed class."""
    naming = Naming(manifest.classes)
    known = [info.class_id for info in manifest.classes if info.kind == "known"]
    named = [i for i in names.labels if i not in known]
    if not named and not set(names.merges.values()) & set(known):
        raise UsageError("no discovered class has a name yet; name one with scda-adapt review")
    active = [i for i in manifest.class_ids if names.resolve(i) == i]
    return {i: naming.label(names, i) for i in active if i in known or i in named}


def _of_target(bundle: Path, target: Path, names: Names) -> list[_Image]:
    pictures = read_target_images(bundle)
    if not target.is_dir():
        raise UsageError(f"{target}: no such folder; use --target DIR if the images have moved")
    files = TargetFolder(target)
    return [
        _Image(
            "target",
            target,
            files.path(one.path),
            names.resolve(one.class_id),
            one.confidence,
            one.sha256,
        )
        for one in pictures
    ]


def _of_source(source: Path, manifest: Manifest, names: Names) -> Iterator[_Image]:
    ids = {
        folder_label(info.label): info.class_id for info in manifest.classes if info.kind == "known"
    }
    if not source.is_dir():
        raise UsageError(f"{source}: no such folder; expected the labelled images of the training")
    # A class folder may be a link, as for training; below it, links to folders are not followed.
    for folder in visible_folders(source):
        if folder_label(folder) not in ids:
            raise UsageError(f"{source}: {folder} is not a known class of this bundle")
        class_id = names.resolve(ids[folder_label(folder)])
        if class_id not in manifest.class_ids:  # dropped
            continue
        for path in walk(source / folder):
            yield _Image("source", source, path.relative_to(source).as_posix(), class_id, 1.0)


class _Placer:
    """Places images in the folders of their classes, and keeps the rows of the manifest."""

    def __init__(self, draft: Path, out: Path, labels: dict[str, str], mode: str) -> None:
        self._draft, self._labels = draft, labels
        self._folders = folder_names(labels, reserved=(ROWS,))
        self._placer = ClassFolders(draft, mode, shown=out)
        self._table = io.StringIO(newline="")
        self._rows = csv.writer(self._table)
        self._rows.writerow(COLUMNS)

    def place(self, image: _Image) -> bool:
        """Copy or link an image; return whether it still has the content of the training."""
        place = self._placer.place(image.file, self._folders[image.class_id])
        # The copy is compared, not the original, which may change before it is copied.
        if image.sha256 and file_sha256(self._draft / place) != image.sha256:
            (self._draft / place).unlink()
            return False
        self._rows.writerow(
            (
                place.as_posix(),
                image.origin,
                image.path,
                image.class_id,
                self._labels[image.class_id],
                f"{image.confidence:.6f}",
            )
        )
        return True

    def finish(self) -> None:
        """Write the manifest, and remove the folders of classes without an image."""
        for folder in visible_folders(self._draft):
            with suppress(OSError):
                (self._draft / folder).rmdir()
        (self._draft / ROWS).write_bytes(self._table.getvalue().encode("utf-8", "surrogateescape"))
