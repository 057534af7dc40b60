"""Is there anything new in the target at all? The closed-first rule (choice 22b).

The paper assumes new classes. Where there are none, the adversarial game still pushes a tenth to a
quarter of the target out. So where it pushes out less than a third, a model with known classes
alone is trained first: it shows whether anything is new, and which of the suspects are.
"""

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from scda.adapt.config import TrainConfig
from scda.adapt.discovery.discover import Discovery
from scda.adapt.discovery.findings import Finding, Status
from scda.adapt.discovery.kmeans import Points
from scda.adapt.discovery.neighbours import nearest_others
from scda.adapt.discovery.propagation import smooth
from scda.adapt.discovery.selection import Candidates, empty_ids, entropy, lower_half, select
from scda.models.index import Ids, normalised

# Chosen on Office-31, protocol P1; docs/method.md says how well they hold.
NEW_SHARE = 0.33  # of the target, predicted unknown after pre-training; above, it has new classes
MAX_DISAGREEMENT = 0.038  # share of images unlike their neighbours; up to it, nothing is new
_NEIGHBOURS = 10
_FAR = 1.1  # times the distance that nine tenths of a class's surest images keep to its centre
_QUANTILE = 0.9
_REACH = 0.5  # of the average over neighbours: an outlier alone is an odd picture, not a class


def expects_new_classes(
    before: Discovery | None, logits: Points, num_known: int, config: TrainConfig
) -> bool:
    """Return whether this round looks for new classes.

    Args:
        before: The round before.
        logits: (N, C) of the target, by the model of the last stage.
        num_known: K.
        config: Of the run.
    """
    if config.k or config.novel != "auto":  # who gives their number says that there are some
        return config.novel != "no"
    if before is not None:  # decided in the first round
        return before.k_star > 0 or len(before.suspects) > 0
    return bool((logits.argmax(axis=1) >= num_known).mean() > NEW_SHARE)


def closed_round(logits: Points, before: Discovery | None, suspects: Ids) -> Discovery:
    """Return a discovery of nothing: T_kn chosen among known classes alone, k* = 0.

    Args:
        logits: (N, K) of the known classes.
        before: The round before, whose verdict stays true.
        suspects: Rows of the target that may be new.
    """
    candidates = select(logits, num_known=logits.shape[1], implicit_share="half")
    known = Candidates(candidates.known, candidates.known_labels, empty_ids())
    verdict = before.verdict if before else None
    return Discovery(0, known, empty_ids(), verdict=verdict, suspects=suspects)


def judge_closed_round(
    found: Discovery, logits: Points, backbone: Points, graph: csr_array, num_known: int
) -> Discovery:
    """Return the closed round with its verdict, and with the suspects that stand up to it.

    Args:
        found: The closed round that the model was trained on.
        logits: (N, K) of that model.
        backbone: (N, D_backbone) features.
        graph: The target's neighbourhood.
        num_known: K.
    """
    labels = logits.argmax(axis=1)
    share = neighbour_disagreement(labels, backbone)
    measured = f"{share:.1%} of the target images disagree with their neighbours"
    far = np.flatnonzero(
        smooth(relative_distance(logits, backbone, num_known), graph, _REACH) > _FAR
    )
    suspects = np.intersect1d(found.suspects, far)
    if share <= MAX_DISAGREEMENT or not len(suspects):
        advice = "a small new class may be missed; use --novel yes to search for new classes"
        verdict = Finding(Status.NOTHING_NEW, measured, advice)
        return replace(found, verdict=verdict, suspects=empty_ids())
    measured += f", and {len(suspects)} images are unlike every known class"
    advice = (
        "inspect the discovered classes; use --novel no to give every image a known class, or "
        "--novel yes to find more"
    )
    return replace(found, verdict=Finding(Status.FEW_NEW, measured, advice), suspects=suspects)


def suspect_candidates(found: Discovery, logits: Points) -> Candidates:
    """Return the suspects as T_im, and T_kn from all other images; logits (N, K)."""
    candidates = select(logits, num_known=logits.shape[1], implicit_share="half")
    kept = ~np.isin(candidates.known, found.suspects)
    return Candidates(candidates.known[kept], candidates.known_labels[kept], found.suspects)


def neighbour_disagreement(labels: Ids, backbone: Points) -> float:
    """Return the share of images of whose 10 nearest neighbours fewer than half share the label.

    New classes get scattered known labels, which their neighbours do not share.

    Args:
        labels: (N,) closed-set predictions.
        backbone: (N, D_backbone) features.
    """
    others = labels[nearest_others(backbone, _NEIGHBOURS)]  # (N, 10)
    if not others.shape[1]:
        return 0.0
    return float(((others == labels[:, None]).mean(axis=1) < 0.5).mean())


def relative_distance(logits: Points, backbone: Points, num_known: int) -> Points:
    """Return how far every image is from its class's centre in the target, (N,).

    The centre is that of the class's lower-entropy half; 1 is the distance (1 - cosine) that nine
    tenths of this half keep, or half of what is usual where that is less.

    Args:
        logits: (N, K) of a closed model.
        backbone: (N, D_backbone) features.
        num_known: K.
    """
    points, labels, uncertain = normalised(backbone), logits.argmax(axis=1), entropy(logits)
    distances = np.zeros(len(points), np.float32)
    usual = np.full(num_known, np.nan)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        surest = lower_half(members, uncertain)
        centre = normalised(points[surest].mean(axis=0, keepdims=True))[0]
        distances[members] = 1 - points[members] @ centre
        usual[label] = np.quantile(distances[surest], _QUANTILE)
    # One image, or copies of it, lie at no distance from their centre: that is no measure.
    least = max(np.nanmedian(usual) / 2, np.finfo(np.float32).eps)
    return np.asarray(distances / np.maximum(usual, least)[labels], np.float32)
