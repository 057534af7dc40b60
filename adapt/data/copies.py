"""Hints from the digests of images: copies within a folder, between classes, between domains."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scda.models.files import printable

_SHOWN = 3  # names
_MANY = 100  # copies that are worth a hint in any folder
_FEW = 10  # copies that are no matter in any folder
_SHARE = 0.01  # of a folder's images, in between


@dataclass(frozen=True)
class Hashed:
    """The usable images of one domain: path, SHA-256 and, for the source, class of each."""

    paths: Sequence[Path]
    digests: Sequence[str]
    labels: Sequence[str] = ()


def copy_hints(source: Hashed, target: Hashed) -> list[str]:
    """Return what the user should know before training about files with the same content."""
    hints = [_in_both(source, target), _in_two_classes(source)]
    hints += [_copies("source", source), _copies("target", target)]
    return [hint for hint in hints if hint]


def _in_both(source: Hashed, target: Hashed) -> str:
    known = set(source.digests)
    both = [path for path, digest in _rows(target) if digest in known]
    if not both:
        return ""
    return (
        f"{len(both)} target images are in the source, too: {_names(both)}; training takes them "
        "for labelled images of the target, so that they say nothing about its accuracy; if they "
        "were not labelled to help it, remove them from one of the folders"
    )


def _in_two_classes(source: Hashed) -> str:
    classes: dict[str, set[str]] = {}
    for digest, label in zip(source.digests, source.labels, strict=True):
        classes.setdefault(digest, set()).add(label)
    unclear = [path for path, digest in _rows(source) if len(classes[digest]) > 1]
    if not unclear:
        return ""
    count = sum(len(labels) > 1 for labels in classes.values())
    return (
        f"{count} source images are in more than one class: {_names(unclear)}; they teach that "
        "these classes are one; leave each in one class"
    )


def _copies(domain: str, images: Hashed) -> str:
    counts = Counter(images.digests)
    copies = len(images.digests) - len(counts)
    if copies < min(_MANY, max(_FEW, _SHARE * len(images.digests))):
        return ""
    first = {digest: path for path, digest in reversed(_rows(images))}
    most = [(first[digest], count) for digest, count in counts.most_common(_SHOWN) if count > 1]
    shown = ", ".join(f"{printable(str(path))} ({count} times)" for path, count in most)
    return (
        f"{copies} of {len(images.digests)} {domain} images are copies of others: {shown}; many "
        "copies of an image look like a class; remove them"
    )


def _rows(images: Hashed) -> list[tuple[Path, str]]:
    return list(zip(images.paths, images.digests, strict=True))


def _names(paths: Sequence[Path]) -> str:
    shown = ", ".join(printable(str(path)) for path in paths[:_SHOWN])
    return f"{shown} and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else shown
