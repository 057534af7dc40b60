"""The switch from one loaded bundle to another, while requests are answered."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scda.models.errors import UsageError
from scda.serve.http.metrics import Metrics
from scda.serve.http.served.model import ServedModel


@dataclass
class _Held:
    """A model, and how many requests use it; it is closed when none does and it is retired."""

    model: ServedModel
    users: int = 0
    retired: bool = False

    def close_if_unused(self) -> None:
        if self.retired and not self.users:
            self.model.close()


class ModelSwitch:
    """Holds the model that is served, and replaces it whole.

    The switch has two steps, so that several workers can take them together: `prepare` loads and
    verifies the other bundle beside the served one, `commit` exchanges the two at once. Requests
    that began with the earlier model end with it. All methods belong to the thread of the event
    loop.
    """

    def __init__(
        self, model: ServedModel, load: Callable[[Path], ServedModel], metrics: Metrics
    ) -> None:
        """Serve a model; `load` returns that of another bundle or run, verified."""
        self._load, self._metrics = load, metrics
        self._prepared: ServedModel | None = None
        self._attempt = 0  # the last one that may become `_prepared`
        self._expected = model.id
        self._serve(model)

    @property
    def current(self) -> ServedModel:
        """The model that new requests get; over an `await` it may be closed, see `pinned`."""
        return self._held.model

    @property
    def unready(self) -> str:
        """Why this worker must get no more requests, in one line; empty if it may."""
        if self.current.id == self._expected:
            return ""
        return f"serves the model {self.current.id}, expected {self._expected}, as other workers do"

    @contextmanager
    def pinned(self) -> Iterator[ServedModel]:
        """Give the model that is served now, and keep it open until the block ends."""
        held = self._held
        held.users += 1
        try:
            yield held.model
        finally:
            held.users -= 1
            held.close_if_unused()

    async def prepare(self, bundle: Path) -> str:
        """Load a bundle or a run beside the served model, verify it, and return its model id.

        Raises:
            ScdaError: If it cannot be served, or another call came meanwhile; the served model
                stays.
        """
        self.discard()
        attempt = self._attempt
        prepared = await asyncio.to_thread(self._load, bundle)
        if attempt != self._attempt:  # discarded before it was loaded
            prepared.close()
            raise UsageError(f"{bundle}: was discarded before it was loaded")
        self._prepared = prepared
        return prepared.id

    def commit(self, model_id: str) -> None:
        """Serve the prepared model from now on.

        Raises:
            UsageError: If no model of this id is prepared; the served model stays, and as other
                workers may have switched, this one is `unready`.
        """
        self._expected, prepared = model_id, self._prepared
        if prepared is None or prepared.id != model_id:
            found = prepared.id if prepared else "none"
            raise UsageError(f"prepared model: found {found}, expected {model_id}; prepare it anew")
        self._prepared, before = None, self._held
        self._serve(prepared)
        before.retired = True
        before.close_if_unused()

    def discard(self) -> None:
        """Drop a prepared model, if any, and one that is still being loaded."""
        self._attempt += 1
        if self._prepared:
            self._prepared.close()
        self._prepared = None

    def _serve(self, model: ServedModel) -> None:
        self._held = _Held(model)
        self._metrics.model.show(model.id, model.provider)
        # What was loaded lives long: collections of garbage that look through it would hold up
        # requests. What is frozen is still freed when its last reference goes.
        gc.freeze()
