"""The body of a request while it arrives: within a time, a size, and the memory of the server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager

from fastapi import Request

from scda.serve.http.errors import RequestError
from scda.serve.http.settings import Settings


class HeldBytes:
    """How much memory the bodies of all requests take, from their arrival to their answer."""

    def __init__(self, most: int, *, show: Callable[[int], object] = lambda count: None) -> None:
        """Begin with nothing.

        Args:
            most: Largest number of bytes.
            show: Called with the number of bytes whenever it changes.
        """
        self._most, self._held, self._show = most, 0, show

    @contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """Let one request take bytes until the block ends.

        The given function raises a RequestError with code `unavailable` when there are no more.
        """
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if self._held + count > self._most:
                raise RequestError(
                    "unavailable",
                    f"the uploads in progress fill the {self._most:,} bytes that this server has "
                    "for them; try again later",
                )
            taken += count
            self._change(count)

        try:
            yield take
        finally:
            self._change(-taken)

    def _change(self, count: int) -> None:
        self._held += count
        self._show(self._held)


class Body:
    """The body of one request.

    Attributes:
        headers: Headers of the request.
        content_type: Its media type, without parameters.
        max_bytes: Largest size of all its images together.
        max_files: Largest number of its images.
    """

    def __init__(self, request: Request, settings: Settings, take: Callable[[int], None]) -> None:
        """Begin to wait for the body.

        Args:
            request: The request.
            settings: The limits of the server.
            take: From `HeldBytes.share`.
        """
        self.headers = request.headers
        self.content_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        self.max_bytes, self.max_files = settings.max_bytes, settings.max_files
        self._largest = settings.largest_body
        self._stream, self._take = request.stream(), take
        self._seconds = settings.upload_seconds
        self._end = asyncio.get_running_loop().time() + self._seconds

    async def chunks(self, *, room: int = 0) -> AsyncIterator[bytes]:
        """Yield the body up to the limit, which does not rely on the Content-Length.

        Args:
            room: How much longer than its files the body may be.

        Raises:
            RequestError: With code `too_many_bytes`, `request_timeout` or `unavailable`.
        """
        most = self.max_bytes + room
        announced = self.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > most:
            raise self._too_many_bytes()
        seen = 0
        while chunk := await self._next():
            seen += len(chunk)
            if seen > most:
                raise self._too_many_bytes()
            self._take(len(chunk))
            yield chunk

    async def read(self, *, room: int = 0) -> bytes:
        """Return the whole body; arguments and errors are those of `chunks`."""
        return await joined(self.chunks(room=room))

    def base64_chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as `chunks` does, with room for base64, line breaks and escapes."""
        return self.chunks(room=self._largest - self.max_bytes)

    def check_size(self, files: Sequence[bytes]) -> None:
        """Check the size of all files together.

        Raises:
            RequestError: With code `too_many_bytes`.
        """
        if sum(map(len, files)) > self.max_bytes:
            raise self._too_many_bytes()

    async def _next(self) -> bytes:
        """Return the next bytes; none at the end."""
        try:
            async with asyncio.timeout_at(self._end):
                return await anext(self._stream, b"")
        except TimeoutError:
            limit = f"{self._seconds:g} seconds"
            raise RequestError(
                "request_timeout", f"the body did not arrive within {limit}"
            ) from None

    def _too_many_bytes(self) -> RequestError:
        limit = f"{self.max_bytes:,} bytes, the limit of this server"
        return RequestError("too_many_bytes", f"the upload is larger than {limit}")


async def joined(chunks: AsyncIterator[bytes], first: bytes = b"") -> bytes:
    """Return what has arrived first, and the chunks behind it."""
    data = bytearray(first)  # one block of memory goes back to the system, thousands do not
    async for chunk in chunks:
        data += chunk
    return bytes(data)
