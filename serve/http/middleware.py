"""What every request passes first: it gets an id, shows the key where one is wanted, is timed.

The answer gets that id and the security headers.
"""

import hmac
import logging
import time
from collections.abc import Collection
from uuid import uuid4

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scda.serve.http.errors import refuse
from scda.serve.http.metrics import Metrics
from scda.serve.web.headers import with_headers

logger = logging.getLogger(__name__)


class RequestMiddleware:
    """ASGI middleware; the health routes are BentoML's and do not come by here."""

    def __init__(
        self, app: ASGIApp, *, api_key: str, metrics: Metrics, public: Collection[str] = ()
    ) -> None:
        """Stand before `app`.

        Args:
            app: What is asked by who may pass.
            api_key: An empty one lets everybody pass.
            metrics: Learns of every answer.
            public: Paths that nobody needs the key for.
        """
        self.app = app
        self._key, self._metrics, self._public = api_key.encode(), metrics, public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it: with 401, and with 500 where a bug ends it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        request_id = request.state.request_id = uuid4().hex
        began, answered = time.perf_counter(), False

        async def send_timed(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                self._metrics.count_request(scope, message["status"], time.perf_counter() - began)
            await send(message)

        answer = with_headers(send_timed, {"X-Request-Id": request_id})
        app = self.app
        if not self._may_pass(request):
            app = refuse(request, "unauthorized", "want Authorization: Bearer KEY")
        try:
            await app(scope, receive, answer)
        except Exception as error:  # a bug; the framework would answer outside of this door
            logger.error("request %s failed", request_id, exc_info=error)
            if answered:
                raise
            app = refuse(request, "internal", "a bug in the server; its log has the request's id")
            await app(scope, receive, answer)

    def _may_pass(self, request: Request) -> bool:
        if not self._key or request.scope["path"] in self._public:
            return True
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        # Headers arrive as Latin-1; comparing bytes in constant time tells nothing of the key.
        shown = key.strip().encode("latin-1")
        return scheme.lower() == "bearer" and hmac.compare_digest(shown, self._key)
