"""images.csv: the images that a run is trained on, with the digests of their contents."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from scda.adapt.data.image_files import Images
from scda.adapt.data.recorded import DOMAINS, Recorded
from scda.adapt.runs.tables import write_table
from scda.models.errors import GateError

_COLUMNS = ("domain", "path", "sha256")


def write_images(path: Path, source: Images, target: Images) -> None:
    """Write a row per image of both domains: its path relative to the folder, and its digest."""
    write_table(path, _COLUMNS, _rows(source=source, target=target))


def read_images(path: Path) -> Recorded:
    """Return the images of images.csv, in order; none if there is no such file.

    Raises:
        GateError: If it is damaged.
    """
    recorded: dict[str, dict[str, str]] = {domain: {} for domain in DOMAINS}
    if path.is_file():
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        try:
            for row in csv.DictReader(io.StringIO(text, newline="")):
                recorded[row["domain"]][row["path"]] = row["sha256"]
        except (KeyError, TypeError, csv.Error) as error:
            advice = "remove it, or start again with --overwrite"
            raise GateError(f"{path}: damaged: {error!r}; {advice}") from None
    return Recorded(recorded["source"], recorded["target"])


def _rows(**domains: Images) -> Iterator[tuple[str, str, str]]:
    for domain, images in domains.items():
        for name, digest in zip(images.names(), images.digests, strict=True):
            yield domain, name, digest
