"""A bundle that was trained after another one, and keeps names of it that are to be confirmed."""

from pathlib import Path

from scda.models.names import Names
from scda.models.previous import Became, Fate, Previous
from tests.bundles import make_bundle

D0, D1 = "discovered-000", "discovered-001"
_BEFORE = {"known-001": "green", "discovered-007": "pen", D0: "stapler"}


def make_carried(folder: Path, names: Names | None = None) -> Path:
    """Write a bundle that keeps these names of both discovered classes, and has them to confirm.

    Without names, the first one has a name and the second one is dropped.
    """
    previous = Previous(
        id="sha256:" + "0" * 64,
        in_common=9,
        classes=tuple(
            Fate(class_id=i, label=label, became=Became.KEPT, into=(i,))
            for i, label in _BEFORE.items()
        ),
        new=(),
        retired={},
        to_confirm={D0: ("known-001", "discovered-007"), D1: ("known-000",)},
    )
    kept = names or Names(version=1, labels={D0: "stapler"}, drops=frozenset([D1]))
    return make_bundle(folder, previous=previous, names=kept)
