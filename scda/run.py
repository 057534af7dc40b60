"""Training from Python: `scda.train` and its result."""

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scda.adapt.config import TrainConfig
from scda.models.bundle import ClassInfo
from scda.models.errors import UsageError
from scda.models.extras import needs_extra
from scda.models.limits import MAX_BYTES, MAX_PIXELS, ImageLimits
from scda.models.trust import Trust

if TYPE_CHECKING:
    from scda.serve.model import Model


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run.

    Attributes:
        path: The folder of the run; open its `report.html` first.
        id: The bundle's id, 16 hex digits.
        classes: The known classes, then the discovered ones by falling size.
        status: `ok`, or the statuses of the findings, such as `weak transfer`.
        trust: The estimated accuracy, made without labels of the target.
        findings: One sentence per finding with what to do about it; empty if there are none.
        num_rejected: Number of unusable files, which are listed in `rejected.csv`.
    """

    path: Path
    id: str
    classes: tuple[ClassInfo, ...]
    status: tuple[str, ...]
    trust: Trust | None
    findings: tuple[str, ...]
    num_rejected: int

    @property
    def bundle(self) -> Path:
        """The folder of the exported model, which is all that labelling and serving need."""
        return self.path / "bundle"

    @property
    def k_star(self) -> int:
        """The number of discovered classes."""
        return sum(info.kind == "discovered" for info in self.classes)

    def load(self, *, provider: str = "auto", threads: int = 0) -> "Model":
        """Return the loaded model; arguments and errors are those of `scda.load`."""
        from scda.serve.model import load

        return load(self.bundle, provider=provider, threads=threads)


def train(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    config: TrainConfig | None = None,
    after: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    recursive: bool = True,
    max_bytes: int = MAX_BYTES,
    max_pixels: int = MAX_PIXELS,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
) -> Run:
    """Adapt to an unlabelled folder: train, discover new classes, export a bundle, write a report.

    Needs the extra `train`. Random generators and thread counts of the process are left as they
    were. Progress is shown on standard error. Several processes share a run
    with `torchrun -m scda.adapt train`, not with this function.

    Args:
        source: Labelled images: a folder with one folder per class.
        target: Folder of unlabelled images, in any order of folders.
        out: Folder of the run; new, unless `resume` or `overwrite` is given.
        config: Configuration of the run, of a preset by `TrainConfig.from_preset`; None takes the
            defaults.
        after: Earlier run or bundle whose classes keep their ids and names; None takes that of
            `config`.
        cache: Folder for backbone features; None takes the user's cache folder.
        recursive: Whether to include the images of sub-folders.
        max_bytes: Largest file that is read, in bytes.
        max_pixels: Largest image that is read, in pixels.
        resume: Whether to continue a stopped run in `out`.
        overwrite: Whether to replace a run in `out`.
        quiet: Whether to show only warnings.

    Raises:
        UsageError: If a path or an option is wrong, or the extra `train` is not installed.
        DataError: If the images cannot be trained on.
        GateError: If training diverges or the exported model differs from the trained one; if it
            diverges late, the bundle of the last good round is written all the same.

    Example:
        >>> import scda
        >>> run = scda.train("labelled/", "new-camera/", "run", config=scda.TrainConfig(seed=1))
        >>> run.load().predict("photo.jpg").label
        'stapler'
    """
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise UsageError("scda.train in several processes; expected `torchrun -m scda.adapt train`")
    with needs_extra("train"):
        from scda.adapt.data.job import Job
        from scda.adapt.pipeline.run import train as run_job
        from scda.adapt.runtime import rng
        from scda.adapt.runtime.progress import Reporter
        from scda.adapt.runtime.threads import threads_kept
        from scda.models.cache import user_cache
    config = config or TrainConfig()
    if after is not None:
        config = dataclasses.replace(config, after=os.fspath(after))
    job = Job(
        source=Path(source),
        target=Path(target),
        out=Path(out),
        cache=Path(cache) if cache else user_cache() / "features",
        config=config,
        recursive=recursive,
        limits=ImageLimits(max_bytes=max_bytes, max_pixels=max_pixels),
        resume=resume,
        overwrite=overwrite,
    )
    with Reporter(quiet=quiet) as reporter, threads_kept(), rng.kept():
        trained = run_job(job, reporter)
    assert trained is not None  # it is None only in processes other than rank 0
    manifest = trained.manifest
    return Run(
        path=job.out,
        id=manifest.id,
        classes=manifest.classes,
        status=manifest.status,
        trust=manifest.trust,
        findings=tuple(manifest.run.get("notes", ())),
        num_rejected=trained.rejected,
    )
