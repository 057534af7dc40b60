"""The page of an audit: one self-contained HTML file, pictures first."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from scda.adapt.audit.audit import Audit, AuditJob
from scda.adapt.audit.findings import Finding, Kind
from scda.adapt.report.environment import page_environment
from scda.adapt.report.thumbnails import make_thumbnails
from scda.adapt.runtime.progress import Reporter

_MOST_LABELS = 60  # pairs of pictures shown
_MOST_GROUPS = 24  # groups of copies shown per section
_PER_GROUP = 6  # pictures of one group
_MOST_ROWS = 200  # rows of a table


@dataclass(frozen=True)
class CopyGroup:
    """Images that show one picture; the first one is kept."""

    pictures: list[tuple[str, str, str]]  # domain, path, class
    more: int  # images that are not shown
    caption: str


def render_audit(result: Audit, job: AuditJob, reporter: Reporter) -> str:
    """Return the page; it holds every picture that it shows."""
    labels = result.of(Kind.LABEL)[:_MOST_LABELS]
    copies = result.of(Kind.COPY)
    groups = {
        "two": copy_groups(result.of(Kind.TWO_CLASSES)),
        "leaks": copy_groups(result.of(Kind.LEAK)),
        "source": copy_groups([one for one in copies if one.domain == "source"]),
        "target": copy_groups([one for one in copies if one.domain == "target"]),
    }
    shown = {("source", path) for one in labels for path in (one.path, one.other)}
    shown |= {
        picture[:2]
        for part in groups.values()
        for group in part[:_MOST_GROUPS]
        for picture in group.pictures
    }
    return (
        page_environment()
        .get_template("audit.html")
        .render(
            style=Path(__file__).with_name("report.css").read_text("utf-8"),
            result=result,
            job=job,
            labels=labels,
            groups=groups,
            most_groups=_MOST_GROUPS,
            classes=result.of(Kind.FEW, Kind.ALIKE),
            names=result.of(Kind.NAME),
            rejected=result.of(Kind.REJECTED),
            most_rows=_MOST_ROWS,
            urls=_thumbnails(shown, job, reporter),
            kinds=Kind,
        )
    )


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


def _thumbnails(
    shown: set[tuple[str, str]], job: AuditJob, reporter: Reporter
) -> dict[tuple[str, str], str]:
    reporter.begin("pictures", len(shown))
    urls: dict[tuple[str, str], str] = {}
    for domain, root in job.roots.items():
        names = sorted(path for of, path in shown if of == domain)
        made = make_thumbnails(
            root, names, [], limits=job.limits, on_progress=lambda done, total: None
        )
        urls |= {(domain, name): url for name, url in made.urls.items()}
    return urls
