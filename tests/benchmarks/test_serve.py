"""The lines of `benchmarks.serve`, from made-up loads."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

pytest.importorskip("aiohttp", reason="the extra bench is not installed")

from benchmarks import serve
from benchmarks.label import BOUND, FLOAT32, INT8, INT8_OV
from benchmarks.serve import Full, Round
from benchmarks.speed import contestant
from benchmarks.speed.contestant import Contestant
from benchmarks.speed.load import Load
from scda.models.cpus import usable_cpus

LITSERVE = "LitServe, one worker", "LitServe, a worker per core"


def load(rate: float, *, latency: float = 0.1, slowest: float = 0.1, clients: float = 0) -> Load:
    """Return a load of 10 seconds; `clients` are the seconds of processor of its clients."""
    count = round(10 * rate)
    slow = count // 50  # more than 1%
    latencies = (latency,) * (count - slow) + (slowest,) * slow
    return Load(latencies, 10.0, clients, server_seconds=0.02 * count)


def a_round(ours: float, int8: float | None, litserve: tuple[float, float] = (80, 70)) -> Round:
    """Return a round on a machine whose cores could answer 100 images/s with clients of no cost."""
    loads = {FLOAT32: load(ours), **dict(zip(LITSERVE, map(load, litserve), strict=True))}
    if int8:
        loads[INT8] = load(int8, clients=2.5 * usable_cpus())  # a quarter of the cores
        loads[INT8_OV] = load(95)
    even = load(50, slowest=0.4)
    chance = load(50, slowest=0.6)
    cost = usable_cpus() / 100
    return Round(full=Full(cost, loads), alone=load(10), even=even, chance=chance)


def test_every_figure_is_compared_with_its_bound() -> None:
    rounds = [a_round(93, 90), a_round(92, 82.5), a_round(60, 60)]
    assert list(map(str, serve.answers(rounds))) == [
        "PASS name=serve_bound ratio=0.92 bar=0.88",
        "PASS name=serve_p99 ratio=4 bar=5",
        "FAIL name=serve_p99_at_random ratio=6 bar=5",
        "PASS name=serve_vs_litserve ratio=1.15 bar=1.15",
        "PASS name=serve_int8 ratio=1.1 bar=1.1",  # of the 75 images/s that its clients leave
        "FAIL name=serve_int8_openvino ratio=0.95 bar=1.1",
    ]


def test_without_a_bundle_in_int8_its_lines_do_not_apply() -> None:
    *_, one, two = serve.answers([a_round(92, None)])
    assert str(one) == "NOT APPLICABLE name=serve_int8: no bundle of --int8"
    assert (
        str(two) == "NOT APPLICABLE name=serve_int8_openvino: no bundle of --int8, or no OpenVINO"
    )


def test_a_round_names_every_server() -> None:
    said = str(a_round(92, 110))
    for name in (f"{BOUND} 100.0", f"{FLOAT32} 92.0", f"{INT8} 110.0", f"{LITSERVE[1]} 70.0"):
        assert name in said
    assert "at random 100.0 and 600.0" in said


def test_a_rate_has_the_processor_time_of_the_server_alone() -> None:
    rates = a_round(92, 110).full.rates()
    assert rates[INT8].per_second == 110
    assert rates[INT8].processor_seconds == pytest.approx(0.02)
    assert rates[BOUND].processor_seconds == usable_cpus() / 100


def test_the_processor_time_of_a_load_is_that_of_the_servers_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = iter([2.5, 4.0])
    server = SimpleNamespace(
        url="http://here", alone=nullcontext, processor_seconds=lambda: next(used)
    )
    monkeypatch.setattr(contestant, "keep_busy", lambda *unused, **options: load(10))
    busy = Contestant(server, "/v1/predict", "image").busy([b""], clients=1, seconds=1)  # type: ignore[arg-type]
    assert busy.server_seconds == 1.5
    assert busy.rate == 10
