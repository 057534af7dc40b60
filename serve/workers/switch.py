"""Switch all workers to another model at once, or none of them."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from scda.models.errors import GateError
from scda.serve.workers.process import Process

logger = logging.getLogger(__name__)


async def switch(
    workers: Sequence[Process], folder: Path, seconds: float
) -> tuple[str, list[Process]]:
    """Let every worker load a bundle beside its own, and exchange the two if all of them could.

    Args:
        workers: Workers that answer.
        folder: The bundle.
        seconds: How long they may take to load it.

    Returns:
        The id of the new model, and the workers that did not exchange after all.

    Raises:
        ScdaError: If one of them cannot load the bundle in time, or two found different models;
            all keep the model that they have.
    """
    calls = (_prepared(worker, folder, seconds) for worker in workers)
    found = await asyncio.gather(*calls, return_exceptions=True)
    errors = [one for one in found if isinstance(one, Exception)]
    ids = sorted({one for one in found if isinstance(one, str)})
    if errors or len(ids) != 1:
        await _call(workers, "discard")
        raise errors[0] if errors else GateError(f"{folder}: changes while it is read ({ids})")
    done = await _call(workers, "commit", model_id=ids[0])
    failed = [worker for worker, one in zip(workers, done, strict=True) if one is not None]
    return ids[0], failed


async def _prepared(worker: Process, folder: Path, seconds: float) -> object:
    try:
        async with asyncio.timeout(seconds):
            return await worker.channel.call("prepare", folder=str(folder))
    except TimeoutError:
        raise GateError(f"{folder}: was not loaded within {seconds:g} seconds") from None


async def _call(workers: Sequence[Process], name: str, **arguments: str) -> list[object]:
    calls = (worker.channel.call(name, **arguments) for worker in workers)
    return list(await asyncio.gather(*calls, return_exceptions=True))
