"""The page of an audit: one self-contained HTML file, pictures first."""

from pathlib import Path

from scda.adapt.audit.audit import Audit, AuditJob
from scda.adapt.audit.findings import Kind
from scda.adapt.report.audit_pictures import audit_pictures
from scda.adapt.report.environment import page_environment
from scda.adapt.runtime.progress import Reporter

_MOST_LABELS = 60  # pairs of pictures shown
_MOST_GROUPS = 24  # groups of copies shown per section
_MOST_ROWS = 200  # rows of a table


def render_audit(result: Audit, job: AuditJob, reporter: Reporter) -> str:
    """Return the page; it holds every picture that it shows."""
    reporter.say("reading the pictures of the page")
    pictures = audit_pictures(
        result.findings,
        job.roots,
        most_labels=_MOST_LABELS,
        most_groups=_MOST_GROUPS,
        limits=job.limits,
    )
    return (
        page_environment()
        .get_template("audit.html")
        .render(
            style=Path(__file__).with_name("report.css").read_text("utf-8"),
            result=result,
            job=job,
            audit=pictures,
            classes=result.of(Kind.FEW, Kind.ALIKE),
            names=result.of(Kind.NAME),
            rejected=result.of(Kind.REJECTED),
            most_rows=_MOST_ROWS,
            kinds=Kind,
        )
    )
