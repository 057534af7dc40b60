import time

import pytest

from scda.serve.labelling.throughput import Throughput


def test_the_rate_is_that_of_the_last_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, throughput = 1000.0, Throughput()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert throughput.describe(50_000, 7) == "0.0/s, 7 failed"  # read back from a journal
    now += 10
    assert throughput.describe(50_100, 7) == "10.0/s, 7 failed"
    now += 25
    assert throughput.describe(51_100, 8) == "40.0/s, 8 failed"


def test_the_time_left_is_that_of_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now, throughput = 1000.0, Throughput(window_seconds=600)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert throughput.describe(256, 0, 100_000) == "0.0/s, 0 failed"
    now += 330  # a part takes longer than half a minute
    assert throughput.describe(16_640, 1, 100_000) == "49.6/s, 1 failed, 0:27:59 left"
    assert throughput.describe(16_640, 1) == "49.6/s, 1 failed"  # the total is not known yet
