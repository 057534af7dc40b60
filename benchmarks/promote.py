"""Compare the accuracy on named classes before and after a promotion.

    python -m benchmarks.promote --source DIR --target DIR --labelled DIR --out DIR

Trains, and gives every discovered class the name of the true class of most of its images: classes
with the same name are merged, also into a known class. Then promotes the target images together
with the source images, and trains again on the promoted folders with the same target, by default
with `--novel no`, because all discovered classes have been reviewed. `acc_named` is the accuracy
over all target images of the classes that have a name, the same ones both times.

The last lines compare each figure with its bound; the exit code is 0 only if all pass.
"""

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.speed.answers import Answer, exit_code
from scda.adapt.config import TrainConfig
from scda.adapt.data.job import Job
from scda.adapt.evaluation.evaluate import Scored, evaluate, score
from scda.adapt.pipeline.run import train
from scda.adapt.runtime.progress import Reporter
from scda.models.cache import user_cache
from scda.models.names import Names
from scda.models.naming import Naming, change_names
from scda.models.predictor import Predictor, load_predictor
from scda.serve.review.promote import promote


@dataclass(frozen=True)
class Judged:
    """The predictions of a bundle and the true labels."""

    predictor: Predictor
    scored: Scored

    @property
    def true_names(self) -> list[str]:
        """The folder name of every true label."""
        known = [one.label for one in self.predictor.active_classes if one.kind == "known"]
        return known + self.scored.implicit_names

    @property
    def named(self) -> set[str]:
        """The true classes whose name is also the name of a class of the bundle."""
        return {one.label for one in self.predictor.active_classes} & set(self.true_names)

    def acc_named(self, only: set[str]) -> float:
        """Return the accuracy, in percent, over the images of the true classes in `only`."""
        true = np.array(self.true_names)[self.scored.true]
        called = np.array([one.label for one in self.predictor.active_classes])[
            self.scored.predicted
        ]
        of_these = np.isin(true, list(only))
        return 100 * float((called == true)[of_these].mean())


def judged(bundle: Path, labelled: Path) -> Judged:
    """Return the predictions of a bundle, with names applied, for a labelled folder."""
    predictor = load_predictor(bundle)
    return Judged(predictor, score(predictor, labelled, on_progress=lambda done, total: None))


def name_by_majority(before: Judged) -> Names:
    """Give every discovered class the name of the true class of most of its images."""
    num_known, true_names = before.predictor.manifest.num_known, before.true_names

    def change(naming: Naming, names: Names) -> Names:
        holders = dict(zip(true_names[:num_known], naming.class_ids, strict=False))
        for output, class_id in list(enumerate(naming.class_ids))[num_known:]:
            images = before.scored.true[before.scored.predicted == output].tolist()
            if not images:
                continue
            label = true_names[Counter(images).most_common(1)[0][0]]
            if label in holders:
                names = naming.merge(names, [holders[label], class_id])
            else:
                names, holders[label] = naming.name(names, class_id, label), class_id
        return names

    return change_names(before.predictor.folder, change)


def main() -> int:
    """Train, name, promote, train again; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("source", "target", "labelled", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=user_cache() / "features")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--novel", default="no", help="--novel of the second training (no)")
    given = parser.parse_args()
    runs = [given.out / name for name in ("before", "after")]
    promoted = given.out / "promoted"

    def adapt(source: Path, out: Path, novel: str) -> None:
        config = TrainConfig(seed=given.seed, novel=novel)
        job = Job(source=source, target=given.target, out=out, cache=given.cache, config=config)
        with Reporter(quiet=True) as reporter:
            train(job, reporter)

    adapt(given.source, runs[0], "auto")
    raw = judged(runs[0] / "bundle", given.labelled)
    names = name_by_majority(raw)
    before = judged(runs[0] / "bundle", given.labelled)
    promotion = promote(runs[0] / "bundle", promoted, source=given.source, mode="hardlink")
    adapt(promoted, runs[1], given.novel)
    after = judged(runs[1] / "bundle", given.labelled)

    print(*promotion.lines(), *(change.did for change in names.history), sep="\n")
    acc_novel = [evaluate(one.scored, one.predictor)["acc_novel"] for one in (raw, before)]
    named = before.named
    accuracy = [one.acc_named(named) for one in (before, after)]
    of_new = [one.acc_named(named - set(raw.named)) for one in (before, after)]
    print(f"acc_novel before and after naming: {acc_novel[0]:.2f}, {acc_novel[1]:.2f}")
    print(f"acc_named of {len(named)} classes: {accuracy[0]:.2f}, promoted {accuracy[1]:.2f}")
    print(f"acc_named of the new classes: {of_new[0]:.2f}, promoted {of_new[1]:.2f}")
    return exit_code(
        [
            Answer("acc_novel_merged", acc_novel[1] / acc_novel[0], 1, at_least=True),
            Answer("acc_named_promoted", accuracy[1] / accuracy[0], 1, at_least=True),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
