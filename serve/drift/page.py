"""The page of a comparison: one self-contained HTML file, pictures first."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from PIL import Image

from scda.models.bundle import Manifest
from scda.models.drift.compare import ClassChange, Drift
from scda.models.errors import ImageError
from scda.models.files import is_inside, printable
from scda.models.images import read_file
from scda.models.limits import ImageLimits
from scda.models.names import UNKNOWN, Names
from scda.serve.drift.labels import Example, Labels

_THUMBNAIL_PX = 160
_SHOWN = 12  # images of a class
_MEANINGS = {
    "classes": "the shares of the classes differ",
    "confidence": "the model is less confident",
    "distance": "images lie farther from their class",
    "outliers": "more images are far from every class",
}


@dataclass(frozen=True)
class Compared:
    """One output of a labelling, and how it differs from the reference."""

    labels: Labels
    drift: Drift


@dataclass(frozen=True)
class _Pictures:
    """The images that the page shows; `root` is the folder of the stream, if it is there."""

    bundle: Path
    manifest: Manifest
    names: Names
    root: Path | None

    def label(self, class_id: str) -> str:
        known = {info.class_id: self.names.label(info) for info in self.manifest.classes}
        return known.get(class_id, UNKNOWN)

    def exemplars(self, class_id: str) -> list[str]:
        paths = {info.class_id: info.exemplars for info in self.manifest.classes}
        return [_picture(self.bundle / path, "") for path in paths.get(class_id, ())[:_SHOWN]]

    def stream(self, examples: Sequence[Example]) -> list[str]:
        if self.root is None:
            return []
        limits = ImageLimits.of_run(self.manifest.run)
        return [
            _picture(
                self.root / one.path,
                f"{printable(one.path)}: {self.label(one.class_id)}, confidence "
                f"{one.confidence:.2f}, distance {one.distance:.3f}",
                limits,
            )
            for one in examples
            if is_inside(one.path)
        ]


def make_page(
    compared: Sequence[Compared],
    bundle: Path,
    manifest: Manifest,
    names: Names,
    *,
    reference: str,
    root: Path | None = None,
) -> str:
    """Return the page as HTML.

    Args:
        compared: The streams in the order of the page.
        bundle: Folder of the bundle.
        manifest: Its manifest.
        names: The names in use.
        reference: What the streams were compared with, in words.
        root: Folder that the paths of the labels are relative to; without it, no image of a stream
            is shown.
    """
    pictures = _Pictures(bundle, manifest, names, root)
    style = files("scda.serve.web").joinpath("theme.css").read_text("utf-8")
    own = files("scda.serve.drift").joinpath("page.css").read_text("utf-8")
    parts = "".join(_section(one, pictures) for one in compared)
    due = any(one.drift.training_due for one in compared)
    head = "A new training is due" if due else "No new training is due"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Drift: {head}</title><style>{style}{own}</style></head><body><main>"
        f"<h1>{head}</h1><p class=soft>Bundle {manifest.id}, compared with {escape(reference)}. "
        f"False alarms: {compared[0].drift.alpha:.0%} of files without a change, all tests "
        f"together.</p>{parts}</main></body></html>\n"
    )


def _section(compared: Compared, pictures: _Pictures) -> str:
    labels, drift = compared.labels, compared.drift
    rows = "".join(
        f'<tr class="{"changed" if name in drift.changed else ""}"><td>{_MEANINGS[name]}</td>'
        f"<td>{'yes' if name in drift.changed else 'no'}</td><td class=number>{value:.4f}</td></tr>"
        for name, value in drift.p_values.items()
    )
    table = (
        f"<table><thead><tr><th>test</th><th>changed</th><th>p, adjusted</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
        if rows
        else ""
    )
    failed = f", {labels.failed} failed" if labels.failed else ""
    verdict = drift.verdict[:1].upper() + drift.verdict[1:]
    farthest = _strip("Farthest from every class", pictures.stream(labels.farthest))
    classes = "".join(_change(one, labels, pictures) for one in drift.classes)
    return (
        f"<section><h2>{escape(printable(labels.path.name))}</h2> <span class=soft>"
        f"{drift.images:,} images{failed}</span><p class=verdict>{escape(verdict)}.</p>"
        f"{classes}{farthest if drift.training_due else ''}{table}</section>"
    )


def _change(change: ClassChange, labels: Labels, pictures: _Pictures) -> str:
    label = pictures.label(change.class_id)
    own = f" <span class=soft>{change.class_id}</span>" if label != change.class_id else ""
    bars = "".join(
        f"<div class=bar><span>{name}</span><i style='width:{100 * share:.1f}%'></i>"
        f"<b>{share:.1%}</b></div>"
        for name, share in (("expected", change.expected), ("found", change.found))
    )
    examples = labels.of_class.get(change.class_id, [])[:_SHOWN]
    return (
        f"<article><h3>{escape(label)}{own}</h3>{bars}"
        f"{_strip('In the training', pictures.exemplars(change.class_id))}"
        f"{_strip('In this stream, the farthest first', pictures.stream(examples))}</article>"
    )


def _strip(title: str, pictures: Sequence[str]) -> str:
    shown = "".join(pictures)
    return f"<h4>{title}</h4><div class=strip>{shown}</div>" if shown else ""


def _picture(path: Path, text: str, limits: ImageLimits | None = None) -> str:
    """Return an image as an element; nothing if it cannot be read any more."""
    try:
        image = read_file(path, limits) if limits else read_file(path)
    except ImageError:
        return ""
    image.thumbnail((_THUMBNAIL_PX, _THUMBNAIL_PX), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=80)
    data = base64.b64encode(file.getvalue()).decode()
    said = escape(text, quote=True)
    return f'<img src="data:image/jpeg;base64,{data}" alt="{said}" title="{said}" loading="lazy">'
