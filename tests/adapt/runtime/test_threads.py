import threading

import faiss
import pytest

from scda.adapt.runtime import threads
from scda.adapt.runtime.threads import in_parallel


@pytest.mark.parametrize("cpus", [1, 2, 40])
def test_results_are_in_the_order_of_the_pieces(cpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "usable_cpus", lambda: cpus)
    assert in_parallel(lambda piece: piece**2, range(30)) == [piece**2 for piece in range(30)]
    assert in_parallel(str, []) == []


def test_two_pieces_are_computed_at_a_time_each_by_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "usable_cpus", lambda: 2)
    both = threading.Barrier(2, timeout=20)

    def piece(number: int) -> int:
        both.wait()  # breaks if nobody else works on another piece
        return faiss.omp_get_max_threads()

    assert in_parallel(piece, range(4)) == [1, 1, 1, 1]


def test_an_error_in_one_piece_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "usable_cpus", lambda: 2)
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda piece: 1 // piece, range(3))
