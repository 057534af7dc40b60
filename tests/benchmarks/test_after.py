from dataclasses import replace
from pathlib import Path

from benchmarks.continuity.outcomes import Outcome, compared
from scda.models.bundle import Manifest, read_manifest
from scda.models.names import Names
from scda.models.previous import Previous
from tests.bundles import make_bundle

D0, D1 = "discovered-000", "discovered-001"


def found(manifest: Manifest, names: Names, **images: dict[str, int]) -> Outcome:
    """Return the outcome of these images: D0={"pen": 3} are three pens in discovered-000."""
    ids = {"K0": "known-000", "D0": D0, "D1": D1}
    pairs = [(ids[c], t) for c, of in images.items() for t, n in of.items() for _ in range(n)]
    return Outcome(manifest, names, [true for _, true in pairs], [one for one, _ in pairs])


def test_what_is_kept_and_what_is_wrong(tmp_path: Path) -> None:
    manifest = read_manifest(make_bundle(tmp_path / "bundle"))
    names = Names(model_id=manifest.id, version=1, labels={D0: "pen", D1: "cup"})
    before = found(manifest, names, D0={"pen": 3}, D1={"cup": 3})
    same = compared(before, found(manifest, names, D0={"pen": 3, "cup": 1}, D1={"cup": 4}))
    assert (same["named"], same["still"], same["kept"], same["wrong"]) == (2, 2, 2, 0)
    assert same["accuracy_carried"] == 87.5
    swapped = compared(before, found(manifest, names, D0={"cup": 3}, D1={"pen": 4}))
    assert (swapped["still"], swapped["kept"], swapped["wrong"]) == (2, 0, 2)
    assert (swapped["to_confirm"], swapped["wrong_told"]) == (0, 0)
    told = Previous(id="x", in_common=4, classes=(), new=(), retired={}, to_confirm={D0: (D1,)})
    doubtful = found(replace(manifest, previous=told), names, D0={"cup": 3}, D1={"pen": 4})
    seen = compared(before, doubtful)
    assert (seen["to_confirm"], seen["wrong_told"]) == (1, 1)
    # A class without a majority is nobody's: nothing is kept, and only the plurality is wrong.
    mixed = compared(before, found(manifest, names, D0={"pen": 3}, D1={"cup": 2, "pen": 3, "x": 2}))
    assert (mixed["still"], mixed["kept"], mixed["wrong"], mixed["wrong_most"]) == (1, 1, 0, 1)
    gone = found(manifest, replace(names, labels={D0: "pen"}), D0={"pen": 3}, D1={"cup": 3})
    assert (compared(before, gone)["still"], compared(before, gone)["kept"]) == (2, 1)
