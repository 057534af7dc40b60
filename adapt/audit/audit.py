"""The audit of a source folder, and of a target folder beside it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from scda.adapt.audit.copies import copy_groups
from scda.adapt.audit.findings import Finding, Kind
from scda.adapt.audit.images import Audited, class_findings, copy_findings, label_findings
from scda.adapt.audit.signatures import read_signatures, resemblance
from scda.adapt.data.features import Extracted, extract
from scda.adapt.data.scan import Rejected, scan_source, scan_target
from scda.adapt.runtime.progress import Reporter
from scda.models.errors import DataError
from scda.models.files import printable
from scda.models.limits import LIMITS, ImageLimits
from scda.models.names import unshowable
from scda.models.networks.backbones import Backbone


@dataclass(frozen=True, kw_only=True)
class AuditJob:
    """The folders to audit."""

    source: Path
    target: Path | None
    cache: Path  # folder of the feature cache
    recursive: bool = True
    limits: ImageLimits = LIMITS

    @property
    def roots(self) -> dict[str, Path]:
        """Domain → its folder."""
        return {"source": self.source, **({"target": self.target} if self.target else {})}


@dataclass(frozen=True)
class Audit:
    """The findings, and what was looked at."""

    findings: list[Finding]
    num_source: int  # usable images
    num_target: int
    sizes: dict[str, int]  # class → number of usable images

    def of(self, *kinds: Kind) -> list[Finding]:
        """Return the findings of these kinds, in their order."""
        return [one for one in self.findings if one.kind in kinds]

    def counts(self) -> dict[str, int]:
        """Return the number of findings of every kind."""
        return {kind.value: len(self.of(kind)) for kind in Kind}


def audit(job: AuditJob, backbone: Backbone, reporter: Reporter) -> Audit:
    """Look at all images of the folders; nothing in them is changed.

    Raises:
        UsageError: If a folder or the cache cannot be used.
        DataError: If no source image is usable.
    """
    scanned = scan_source(job.source, recursive=job.recursive)
    class_of = {path: name for name, paths in scanned.classes.items() for path in paths}
    target_paths = scan_target(job.target, recursive=job.recursive).paths if job.target else ()
    of_source = _extract([*class_of], job, backbone, reporter, "source images")
    of_target = _extract(target_paths, job, backbone, reporter, "target images")
    if not of_source.paths:
        raise DataError(f"{job.source}: no class folder holds a usable image")
    paths = [*of_source.paths, *of_target.paths]
    images = Audited(
        [*_names(of_source.paths, job.source), *_names(of_target.paths, job.target)],
        [class_of[path] for path in of_source.paths],
        np.concatenate([of_source.features, of_target.features]),
        of_source.digests + of_target.digests,
    )
    reporter.begin("comparing images", len(paths))
    signatures = read_signatures(paths, job.limits, reporter.done)
    groups = copy_groups(images.features, images.digests, partial(resemblance, signatures))
    doubted, judged = label_findings(images)
    names = [
        *_unreadable_names("source", class_of, job.source),
        *_unreadable_names("target", target_paths, job.target),
    ]
    findings = [
        *doubted,
        *copy_findings(images, groups, judged),
        *class_findings(images, groups),
        *_empty_classes(scanned.classes, images.classes),
        *names,
        *_rejected("source", of_source.rejected, job.source),
        *_rejected("target", of_target.rejected, job.target),
    ]
    kinds = list(Kind)
    findings.sort(key=lambda one: kinds.index(one.kind))
    return Audit(findings, len(of_source.paths), len(of_target.paths), Counter(images.classes))


def _extract(
    paths: Sequence[Path], job: AuditJob, backbone: Backbone, reporter: Reporter, what: str
) -> Extracted:
    reporter.begin(what, len(paths) * backbone.passes)
    return extract(
        paths,
        backbone,
        cache_folder=job.cache,
        limits=job.limits,
        on_progress=reporter.done,
    )


def _names(paths: Iterable[Path], root: Path | None) -> list[str]:
    return [path.relative_to(root).as_posix() for path in paths] if root else []


def _empty_classes(classes: Iterable[str], used: Sequence[str]) -> list[Finding]:
    message = "no usable image; training leaves the class out"
    return [
        Finding(kind=Kind.FEW, domain="source", path=name, label=name, message=message)
        for name in sorted(set(classes) - set(used))
    ]


def _unreadable_names(domain: str, paths: Iterable[Path], root: Path | None) -> list[Finding]:
    """Return the files whose names are no text, or change what is shown."""
    message = "the name holds bytes or characters that cannot be shown; rename the file"
    return [
        Finding(kind=Kind.NAME, domain=domain, path=name, message=message)
        for name in _names(paths, root)
        if printable(name) != name or any(unshowable(name))
    ]


def _rejected(domain: str, rejected: Iterable[Rejected], root: Path | None) -> list[Finding]:
    return [
        Finding(
            kind=Kind.REJECTED,
            domain=domain,
            path=bad.path.relative_to(root).as_posix() if root else str(bad.path),
            remove=True,
            message=f"{bad.code}: {bad.message}",
        )
        for bad in rejected
    ]
