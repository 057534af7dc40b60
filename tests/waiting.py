"""Waiting for what other processes do, without a time that a busy machine would miss."""

import time
from collections.abc import Callable


def wait_for(found: Callable[[], object], wanted: object) -> None:
    """Return once `found()` equals `wanted`; fail after two minutes."""
    deadline = time.monotonic() + 120
    while (last := found()) != wanted:
        assert time.monotonic() < deadline, (last, wanted)
        time.sleep(0.02)
