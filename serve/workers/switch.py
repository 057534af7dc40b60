"""Switch all workers to another model at once, or none of them."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from scda.models.errors import GateError
from scda.serve.workers.process import Process

logger = logging.getLogger(__name__)


async def switch(workers: Sequence[Process], folder: Path) -> tuple[str, list[Process]]:
    """Let every worker load a bundle beside its own, and exchange the two if all of them could.

    Args:
        workers: Workers that answer.
        folder: The bundle.

    Returns:
        The id of the new model, and the workers that did not exchange after all.

    Raises:
        ScdaError: If one of them cannot load the bundle, or two found different models; all keep
            the model that they have.
    """
    found = await _call(workers, "prepare", folder=str(folder))
    errors = [one for one in found if isinstance(one, Exception)]
    ids = sorted({one for one in found if isinstance(one, str)})
    if errors or len(ids) != 1:
        await _call(workers, "discard")
        raise errors[0] if errors else GateError(f"{folder}: changes while it is read ({ids})")
    done = await _call(workers, "commit", model_id=ids[0])
    failed = [worker for worker, one in zip(workers, done, strict=True) if one is not None]
    return ids[0], failed


async def _call(workers: Sequence[Process], name: str, **arguments: str) -> list[object]:
    calls = (worker.channel.call(name, **arguments) for worker in workers)
    return list(await asyncio.gather(*calls, return_exceptions=True))
