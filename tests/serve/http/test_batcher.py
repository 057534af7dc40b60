import asyncio
import threading
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from typing import Any

import numpy as np
import pytest

from scda.models.predictor import Prediction, Predictor
from scda.models.preprocess import Pixels
from scda.serve.http.served.batcher import Batcher
from scda.serve.http.served.turns import Asker

ASKERS: defaultdict[object, Asker] = defaultdict(Asker)  # one for each name


def image(value: int) -> Pixels:
    return np.full((2, 2, 3), value, np.uint8)


class Model:
    """Answers with an image's value; the value 13 breaks it, and a gate can hold it back."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, images: Sequence[Pixels]) -> list[Prediction]:
        values = [int(pixels[0, 0, 0]) for pixels in images]
        self.calls.append(values)
        assert self.gate.wait(60)
        if 13 in values:
            raise RuntimeError("the model broke")
        return [answer(value) for value in values]


def answer(value: int) -> Prediction:
    return Prediction(
        label=str(value),
        kind="known",
        class_id="known-000",
        confidence=1.0,
        outlier=False,
        entropy=0.0,
        margin=1.0,
        nearest=(),
        top=(),
        model_id="x",
        names_version=0,
    )


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 120))


async def ask_all(batcher: Batcher[Pixels, Prediction], values: Sequence[int]) -> list[Any]:
    waiting = (batcher.answer(image(value), ASKERS[value]) for value in values)
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    return [a.label if isinstance(a, Prediction) else str(a) for a in answers]


def test_every_image_gets_its_own_answer() -> None:
    model = Model()
    assert run(ask_all(Batcher(model, max_batch=4), range(10))) == [str(i) for i in range(10)]
    assert [len(call) for call in model.calls] == [4, 4, 2]


def test_images_gather_while_the_model_is_at_work() -> None:
    model = Model()

    async def work() -> None:
        batcher = Batcher(model, max_batch=8)
        model.gate.clear()
        first = asyncio.create_task(batcher.answer(image(0), ASKERS[0]))
        while not model.calls:
            await asyncio.sleep(0.001)
        rest = [asyncio.create_task(batcher.answer(image(i), ASKERS[i])) for i in range(1, 6)]
        await asyncio.sleep(0.01)
        model.gate.set()
        await asyncio.gather(first, *rest)

    run(work())
    assert model.calls == [[0], [1, 2, 3, 4, 5]]


def test_lanes_work_side_by_side() -> None:
    model = Model()

    async def work() -> None:
        batcher = Batcher(model, max_batch=8, lanes=2)
        model.gate.clear()
        tasks = []
        for i in range(2):
            tasks.append(asyncio.create_task(batcher.answer(image(i), ASKERS[i])))
            while len(model.calls) <= i:  # the second call begins while the first one stands
                await asyncio.sleep(0.001)
        tasks += [asyncio.create_task(batcher.answer(image(i), ASKERS[i])) for i in range(2, 5)]
        await asyncio.sleep(0.01)
        assert len(model.calls) == 2
        model.gate.set()
        assert [(await task).label for task in tasks] == ["0", "1", "2", "3", "4"]

    run(work())
    assert model.calls[:2] == [[0], [1]]
    assert sorted(x for call in model.calls[2:] for x in call) == [2, 3, 4]


def test_on_several_lanes_batches_shrink_with_the_queue() -> None:
    model = Model()
    assert len(run(ask_all(Batcher(model, max_batch=32, lanes=2), range(12)))) == 12
    # Each time a quarter of what waits; the threads may begin in another order.
    assert sorted(len(call) for call in model.calls) == [1, 1, 1, 1, 2, 3, 3]


def test_images_that_waited_for_each_other_go_together_on_several_lanes() -> None:
    model = Model()
    batcher = Batcher(model, max_batch=4, max_wait_seconds=0.05, lanes=2)
    assert run(ask_all(batcher, range(3))) == ["0", "1", "2"]
    assert model.calls == [[0, 1, 2]]


def test_answers_that_are_missing_are_told_and_the_lane_goes_on() -> None:
    def forgetful(images: Sequence[Pixels]) -> list[Prediction]:
        return [answer(int(pixels[0, 0, 0])) for pixels in images if pixels[0, 0, 0] != 13]

    async def work() -> list[Any]:
        batcher = Batcher(forgetful, max_batch=8)
        return [await ask_all(batcher, [1, 13]), await ask_all(batcher, [2])]

    together, after = run(work())
    assert together[0] == "1"
    assert "shorter" in together[1]
    assert after == ["2"]


def test_an_image_that_breaks_the_model_is_answered_alone() -> None:
    model = Model()
    answers = run(ask_all(Batcher(model, max_batch=8), [1, 13, 2]))
    assert answers == ["1", "the model broke", "2"]
    assert model.calls == [[1, 13, 2], [1], [13], [2]]


def test_a_small_request_does_not_wait_for_all_of_a_large_one() -> None:
    model = Model()

    async def work() -> None:
        batcher = Batcher(model, max_batch=2)
        model.gate.clear()
        first = asyncio.create_task(batcher.answer(image(0), ASKERS["first"]))
        while not model.calls:
            await asyncio.sleep(0.001)
        large = [
            asyncio.create_task(batcher.answer(image(i), ASKERS["large"])) for i in range(1, 7)
        ]
        await asyncio.sleep(0)
        small = asyncio.create_task(batcher.answer(image(9), ASKERS["small"]))
        await asyncio.sleep(0)
        model.gate.set()
        await asyncio.gather(first, *large, small)

    run(work())
    assert model.calls == [[0], [1, 9], [2, 3], [4, 5], [6]]


def test_who_went_away_is_not_worked_for() -> None:
    model = Model()

    async def work() -> None:
        batcher = Batcher(model, max_batch=8)
        model.gate.clear()
        first = asyncio.create_task(batcher.answer(image(0), ASKERS[0]))
        while not model.calls:
            await asyncio.sleep(0.001)
        gone, stays = (asyncio.create_task(batcher.answer(image(i), ASKERS[i])) for i in (1, 2))
        await asyncio.sleep(0)
        gone.cancel()
        model.gate.set()
        assert (await first).label == "0"
        assert (await stays).label == "2"

    run(work())
    assert model.calls == [[0], [2]]


def test_an_image_may_wait_for_others() -> None:
    model = Model()

    async def work() -> None:
        batcher = Batcher(model, max_batch=8, max_wait_seconds=0.2)
        first = asyncio.create_task(batcher.answer(image(0), ASKERS[0]))
        for _ in range(3):  # it has begun to wait
            await asyncio.sleep(0)
        await asyncio.gather(first, batcher.answer(image(1), ASKERS[1]))

    run(work())
    assert model.calls == [[0, 1]]


def test_nobody_waits_for_others_once_a_batch_is_full_or_waits_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, waits, wait_for = Model(), list[float](), asyncio.wait_for

    async def noted(awaitable: Coroutine[Any, Any, Any], seconds: float) -> Any:
        waits.append(seconds)
        return await wait_for(awaitable, seconds)

    async def work() -> None:
        monkeypatch.setattr(asyncio, "wait_for", noted)
        batcher = Batcher(model, max_batch=2, max_wait_seconds=60)
        assert (
            len(await asyncio.gather(*(batcher.answer(image(i), ASKERS[i]) for i in range(4)))) == 4
        )
        assert waits == []
        batcher = Batcher(model, max_batch=8, max_wait_seconds=0.02)
        model.gate.clear()
        first = asyncio.create_task(batcher.answer(image(0), ASKERS[0]))
        while len(model.calls) < 3:
            await asyncio.sleep(0.001)
        second = asyncio.create_task(batcher.answer(image(1), ASKERS[1]))
        await asyncio.sleep(0.03)  # its whole wait, while the model is at work
        model.gate.set()
        await asyncio.gather(first, second)
        assert len(waits) == 1  # that of the first

    run(work())
    assert model.calls == [[0, 1], [2, 3], [0], [1]]


def test_a_batch_says_what_each_image_alone_does(predictor: Predictor) -> None:
    generator = np.random.default_rng(0)
    images = [generator.integers(0, 256, (32, 32, 3)).astype(np.uint8) for _ in range(7)]

    async def work() -> list[Prediction]:
        batcher = Batcher(predictor.predict, max_batch=3)
        return list(
            await asyncio.gather(*(batcher.answer(one, ASKERS[i]) for i, one in enumerate(images)))
        )

    for together, pixels in zip(run(work()), images, strict=True):
        (alone,) = predictor.predict([pixels])
        assert together.label == alone.label
        assert together.confidence == pytest.approx(alone.confidence, abs=1e-6)
