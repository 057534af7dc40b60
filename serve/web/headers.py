"""The security headers of every answer, for the review page and the server."""

from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; img-src 'self' blob: data:; style-src 'self'; script-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the address of the review page contains its token
    "Cross-Origin-Resource-Policy": "same-origin",
}


def with_headers(send: Send, more: Mapping[str, str] | None = None) -> Send:
    """Return a `send` that adds the security headers, and `more`, to every answer.

    An answer without a Cache-Control header gets `no-store`.
    """

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update({**SECURITY_HEADERS, **(more or {})})
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return send_with_headers
