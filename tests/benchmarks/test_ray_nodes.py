import pytest

from benchmarks.ray_nodes import _Used

# Three nodes that end a part of 64 files each at the same time, every two seconds.
NOTES = [(2.0 * (part // 3), 64 * part, 0.6 * part) for part in range(16)]


def test_rate_and_processor_time_count_from_the_first_to_the_last_part() -> None:
    rate, ms, *_ = _Used(nodes=3, notes=NOTES).describe().split(" | ")
    assert float(rate) == pytest.approx(64 * 15 / 10, abs=0.1)
    assert float(ms) == pytest.approx(1000 * 0.6 / 64, abs=0.1)


@pytest.mark.parametrize("number", [0, 2, 12])
def test_too_few_parts_are_told_instead_of_a_rate(number: int) -> None:
    cells = _Used(nodes=3, notes=NOTES[:number]).describe().split("|")
    assert cells[0].strip() == f"too few parts ({number}): pass more --files"
    assert not any(cell.strip() for cell in cells[1:])
