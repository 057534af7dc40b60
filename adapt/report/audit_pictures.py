"""The pictures of an audit's findings, for its page and for the report of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from scda.adapt.audit.findings import Finding, Kind
from scda.adapt.report.thumbnails import make_thumbnails
from scda.models.limits import LIMITS, ImageLimits

_PER_GROUP = 6  # pictures of one group
NOT_COMPARED: Mapping[str, Mapping[str, str]] = {}


@dataclass(frozen=True)
class CopyGroup:
    """Images that show one picture; the first one is kept."""

    pictures: list[tuple[str, str, str]]  # domain, path, class
    more: int  # images that are not shown
    caption: str


@dataclass(frozen=True)
class AuditPictures:
    """What is shown of an audit.

    Attributes:
        findings: All findings.
        labels: Those labels that look wrong that are shown, most wrong first.
        groups: `two`, `leaks`, `source` and `target` → all groups of copies, the largest first.
        most_groups: Number of groups of each kind that are shown.
        urls: Domain and path → data URL.
    """

    findings: Sequence[Finding]
    labels: list[Finding]
    groups: dict[str, list[CopyGroup]]
    most_groups: int
    urls: dict[tuple[str, str], str]

    def of(self, *kinds: str) -> list[Finding]:
        """Return the findings of these kinds, in their order."""
        return [one for one in self.findings if one.kind in kinds]


def audit_pictures(
    findings: Sequence[Finding],
    roots: Mapping[str, Path],
    *,
    most_labels: int,
    most_groups: int,
    limits: ImageLimits = LIMITS,
    digests: Mapping[str, Mapping[str, str]] = NOT_COMPARED,
) -> AuditPictures:
    """Return what to show of the findings, with a small copy of every picture that can be read.

    Args:
        findings: All findings.
        roots: Domain → its folder, of those that are there.
        most_labels: Largest number of labels shown.
        most_groups: Largest number of groups of copies shown, of each kind.
        limits: The largest image that is read.
        digests: Domain → path → SHA-256 that the file must have; any without.
    """
    labels = [one for one in findings if one.kind == Kind.LABEL][:most_labels]
    copies = {
        "two": [one for one in findings if one.kind == Kind.TWO_CLASSES],
        "leaks": [one for one in findings if one.kind == Kind.LEAK],
    }
    for domain in ("source", "target"):
        copies[domain] = [one for one in findings if (one.kind, one.domain) == (Kind.COPY, domain)]
    groups = {name: copy_groups(found) for name, found in copies.items()}
    shown = {("source", path) for one in labels for path in (one.path, one.other)}
    shown |= {
        picture[:2]
        for part in groups.values()
        for group in part[:most_groups]
        for picture in group.pictures
    }
    urls: dict[tuple[str, str], str] = {}
    for domain, root in roots.items():
        made = make_thumbnails(
            root,
            sorted(path for of, path in shown if of == domain),
            [],
            limits=limits,
            on_progress=lambda done, total: None,
            digests=digests.get(domain, {}),
        )
        urls |= {(domain, name): url for name, url in made.urls.items()}
    return AuditPictures(findings, labels, groups, most_groups, urls)


def copy_groups(findings: Sequence[Finding]) -> list[CopyGroup]:
    """Return the groups of copies that findings of one kind make, the largest first."""

    def kept(one: Finding) -> str:
        return one.other or one.path

    made = []
    for first, members in groupby(sorted(findings, key=kept), key=kept):
        rest = [one for one in members if one.path != first]
        own = next((one for one in findings if one.path == first), None)
        label = own.label if own else rest[0].suggested or rest[0].label
        domain = "source" if rest[0].kind == Kind.LEAK else rest[0].domain
        pictures = [(domain, first, label), *((one.domain, one.path, one.label) for one in rest)]
        labels = sorted({picture[2] for picture in pictures if picture[2]})
        made.append(
            CopyGroup(pictures[:_PER_GROUP], max(0, len(pictures) - _PER_GROUP), " · ".join(labels))
        )
    return sorted(made, key=lambda group: -(len(group.pictures) + group.more))
