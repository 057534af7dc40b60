import os
import signal
import threading
from collections.abc import Iterator

import pytest

from scda.adapt.runtime.signals import DeferredSignals, Terminated

SIGNALS = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]


class AtOnce(BaseException):
    pass


@pytest.fixture(autouse=True)
def usual_handlers() -> Iterator[None]:
    """What a signal does outside; a shell's background job would ignore SIGINT."""

    def at_once(number: int, frame: object) -> None:
        raise AtOnce

    before = {number: signal.signal(number, at_once) for number, _ in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "error"), SIGNALS)
def test_the_first_signal_waits_for_the_end(number: int, error: type[BaseException]) -> None:
    asked = []

    def step(stop: DeferredSignals) -> None:
        asked.append(stop.received())
        send(number)
        asked.append(stop.received())

    with pytest.raises(error), DeferredSignals() as stop:
        step(stop)
    assert asked == [False, True]


def test_a_signal_that_comes_while_others_are_asked_is_heard_at_the_next_step() -> None:
    def nobody_yet(noted: int) -> int:
        if not noted:
            send(signal.SIGTERM)
        return noted

    heard = []
    with pytest.raises(Terminated), DeferredSignals(nobody_yet) as stop:
        heard += [stop.received(), stop.received()]
    assert heard == [False, True]


@pytest.mark.parametrize(("number", "error"), SIGNALS)
def test_the_second_signal_does_not_wait(number: int, error: type[BaseException]) -> None:
    steps = []

    def step() -> None:
        send(number)
        send(number)
        steps.append("never")

    with pytest.raises(error) as raised, DeferredSignals():
        step()
    assert steps == []
    assert isinstance(raised.value.__context__, AtOnce)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_afterwards_signals_do_what_they_did(number: int) -> None:
    with DeferredSignals() as stop:
        pass
    assert not stop.received()
    with pytest.raises(AtOnce):
        send(number)


def test_a_signal_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with DeferredSignals() as stop:
        send(signal.SIGINT)
        assert not stop.received()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_an_error_goes_its_way() -> None:
    with pytest.raises(ValueError, match="of the step"), DeferredSignals():
        raise ValueError("of the step")


def test_a_thread_that_gets_no_signals_may_train() -> None:
    asked: list[bool] = []

    def train() -> None:
        with DeferredSignals() as stop:
            asked.append(stop.received())

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert asked == [False]
