"""What every request passes first: it gets an id, and shows the key where one is wanted."""

import hmac
from uuid import uuid4

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scda.serve.http_errors import refuse


class Door:
    """ASGI middleware; the health routes are BentoML's and do not come by here."""

    def __init__(self, app: ASGIApp, *, api_key: str) -> None:
        """Stand before `app`; an empty key lets everybody in."""
        self.app = app
        self._key = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with 401."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        request_id = request.state.request_id = uuid4().hex

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        if self._key and not self._shows_key(request):
            app: ASGIApp = refuse(request, "unauthorized", "want Authorization: Bearer KEY")
        else:
            app = self.app
        await app(scope, receive, send_with_id)

    def _shows_key(self, request: Request) -> bool:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        # Headers arrive as Latin-1; comparing bytes in constant time tells nothing of the key.
        shown = key.strip().encode("latin-1")
        return scheme.lower() == "bearer" and hmac.compare_digest(shown, self._key)
