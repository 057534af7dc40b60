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
