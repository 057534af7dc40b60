"""What is watched while a run trains, and what its end says of classes that nobody was given."""

from collections.abc import Sequence

import numpy as np

from scda.adapt.discovery.discover import Discovery
from scda.models.index import Ids

_LEAST, _MOST = 0.01, 0.99  # of the target called new; outside, one player of the game has won
_SHOWN = 5  # names


def one_sided(before: float, after: float, discovery: Discovery) -> list[str]:
    """Return a line where one player of the adversarial game had won for a whole round.

    Args:
        before: Share of the target called new when the round began, 0 to 1.
        after: The same at its end.
        discovery: Of the round. Few called new are no fault where few or none are looked for.
    """
    looked_for = discovery.k_star > 0 and not discovery.verdict
    if max(before, after) < _LEAST and looked_for:
        return [
            f"game collapsed: less than {_LEAST:.0%} of the target called new for a whole round; "
            'fewer pretrain_steps and adversary = "sample" in --config, or --novel no'
        ]
    if min(before, after) > _MOST:
        return [
            f"game collapsed: more than {_MOST:.0%} of the target called new for a whole round; "
            "more pretrain_steps in --config or a smaller --lr; is it the right target?"
        ]
    return []


def nobody_called(predicted: Ids, names: Sequence[str]) -> list[str]:
    """Return a line that names the classes no target image is given.

    Args:
        predicted: (N,), the output of every target image.
        names: Of the outputs.
    """
    sizes = np.bincount(predicted, minlength=len(names))
    empty = [name for name, size in zip(names, sizes, strict=True) if not size]
    if not empty:
        return []
    more = f" and {len(empty) - _SHOWN} more" if len(empty) > _SHOWN else ""
    return [
        f"empty class: no target image is called {', '.join(empty[:_SHOWN])}{more}; "
        "the target lacks it, or it is not recognised there"
    ]
