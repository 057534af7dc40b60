import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from scda.models.errors import GateError
from scda.models.parity import COARSE_TOLERANCE, TOLERANCE, Reference, check_parity, drift
from scda.models.preprocess import Pixels
from scda.models.session import Session

COUNT, CLASSES = 5, 4
PIXELS = np.random.default_rng(0).integers(0, 256, (COUNT, 8, 8, 3), dtype=np.uint8)
PROBABILITIES = np.full((COUNT, CLASSES), 1 / CLASSES, np.float32)
REFERENCE = Reference(PIXELS, PROBABILITIES, np.ones((COUNT, 6), np.float32))

Array = NDArray[np.float32]
Change = Callable[[Array], Array]


class Echo:
    """A session that gives the reference's own answer, changed."""

    def __init__(self, change: Change, provider: str, precision: str) -> None:
        self._change, self.provider, self.precision = change, provider, precision

    def run(self, pixels: Pixels) -> list[Array]:
        count = len(pixels)
        return [self._change(PROBABILITIES[:count].copy()), REFERENCE.features[:count]]


def echo(
    change: Change = lambda same: same, provider: str = "cpu", precision: str = "fp32"
) -> Session:
    return cast(Session, Echo(change, provider, precision))


def shifted(by: float, *, at_batch: int | None = None) -> Change:
    def change(probabilities: Array) -> Array:
        if at_batch in (None, len(probabilities)):
            probabilities[-1, -1] += np.float32(by)
        return probabilities

    return change


def test_the_same_answer_does_not_drift() -> None:
    assert check_parity(echo(), REFERENCE) == 0


@pytest.mark.parametrize("batch", [1, 2, COUNT])
def test_a_drift_at_any_batch_size_is_found(batch: int) -> None:
    session = echo(shifted(-0.25, at_batch=batch))
    assert drift(session, REFERENCE) == 0.25
    with pytest.raises(GateError, match=r"^parity: cpu differs by 0\.25, expected 0\.0001$"):
        check_parity(session, REFERENCE)


@pytest.mark.parametrize("provider", TOLERANCE)
def test_each_provider_has_its_own_tolerance(provider: str) -> None:
    tolerance = TOLERANCE[provider]
    within = check_parity(echo(shifted(0.9 * tolerance), provider), REFERENCE)
    assert within == pytest.approx(0.9 * tolerance, rel=1e-2)
    with pytest.raises(GateError, match=provider):
        check_parity(echo(shifted(1.1 * tolerance), provider), REFERENCE)


@pytest.mark.parametrize(("file", "arithmetic"), [("int8", "fp32"), ("fp32", "bf16")])
def test_a_lower_precision_has_a_tolerance_of_its_own(file: str, arithmetic: str) -> None:
    within = echo(shifted(0.9 * COARSE_TOLERANCE), "openvino", arithmetic)
    assert check_parity(within, REFERENCE, precision=file) > TOLERANCE["openvino"]
    beyond = echo(shifted(1.1 * COARSE_TOLERANCE), "openvino", arithmetic)
    with pytest.raises(GateError, match=r"openvino differs by .*, expected 0\.15"):
        check_parity(beyond, REFERENCE, precision=file)


def test_an_answer_that_is_no_number_fails() -> None:
    with pytest.raises(GateError, match="differs by nan"):
        check_parity(echo(shifted(float("nan"))), REFERENCE)


def test_an_answer_of_another_shape_fails() -> None:
    with pytest.raises(GateError, match=r"parity: the model returns \(1, 3\), expected \(1, 4\)"):
        check_parity(echo(lambda probabilities: probabilities[:, :-1]), REFERENCE)


def test_the_bundles_own_model_passes(whole_bundle: Path) -> None:
    session = Session(whole_bundle / "model.onnx", provider="cpu", threads=1)
    assert check_parity(session, load(whole_bundle / "parity.npz")) < 1e-6


def load(path: Path) -> Reference:
    with path.open("rb") as file:
        return Reference.load(file)


def test_what_is_saved_is_loaded_again(tmp_path: Path) -> None:
    REFERENCE.save(tmp_path / "parity.npz")
    loaded = load(tmp_path / "parity.npz")
    for name in ("pixels", "probabilities", "features"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(REFERENCE, name))
        assert getattr(loaded, name).dtype == getattr(REFERENCE, name).dtype


def test_the_file_does_not_tell_when_it_was_written(tmp_path: Path) -> None:
    REFERENCE.save(tmp_path / "parity.npz")
    with zipfile.ZipFile(tmp_path / "parity.npz") as archive:
        assert {info.date_time[0] for info in archive.infolist()} == {1980}


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "parity.npz"
    REFERENCE.save(path)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[200] ^= 0xFF
    np.save(tmp_path / "one.npy", PIXELS)
    np.savez(tmp_path / "other.npz", pixels=PIXELS)
    np.savez(tmp_path / "pickle.npz", pixels=np.array([{}], dtype=object))
    others = [(tmp_path / n).read_bytes() for n in ("one.npy", "other.npz", "pickle.npz")]
    for damaged in (b"", b"text", bytes(flipped), *others, *cut(whole)):
        path.write_bytes(damaged)
        with pytest.raises(GateError, match=r"^parity\.npz: damaged: [^\n]+$"):
            load(path)


def cut(whole: bytes) -> list[bytes]:
    return [whole[:length] for length in range(0, len(whole), 37)]
