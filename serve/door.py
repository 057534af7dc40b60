"""What every request passes first: it gets an id, shows the key where one is wanted, is timed."""

import hmac
import time
from collections.abc import Collection
from uuid import uuid4

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scda.serve.http_errors import refuse
from scda.serve.metrics import Metrics


class Door:
    """ASGI middleware; the health routes are BentoML's and do not come by here."""

    def __init__(
        self, app: ASGIApp, *, api_key: str, metrics: Metrics, public: Collection[str] = ()
    ) -> None:
        """Stand before `app`.

        Args:
            app: Gets what is let in.
            api_key: An empty one lets everybody in.
            metrics: Learns of every answer.
            public: Paths that want no key.
        """
        self.app = app
        self._key, self._metrics, self._public = api_key.encode(), metrics, public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with 401."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        request_id = request.state.request_id = uuid4().hex
        began = time.perf_counter()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
                self._metrics.count_request(scope, message["status"], time.perf_counter() - began)
            await send(message)

        if self._key and not (scope["path"] in self._public or self._shows_key(request)):
            app: ASGIApp = refuse(request, "unauthorized", "want Authorization: Bearer KEY")
        else:
            app = self.app
        await app(scope, receive, send_with_id)

    def _shows_key(self, request: Request) -> bool:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        # Headers arrive as Latin-1; comparing bytes in constant time tells nothing of the key.
        shown = key.strip().encode("latin-1")
        return scheme.lower() == "bearer" and hmac.compare_digest(shown, self._key)
