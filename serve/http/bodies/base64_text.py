"""Decode base64 text while it arrives."""

import re
from binascii import Error, a2b_base64

_URL_SAFE, _SPACE = bytes.maketrans(b"-_", b"+/"), b" \t\r\n"
_DATA_URL = re.compile(rb"data:[^,]*,?", re.IGNORECASE)
_ADDRESS = re.compile(rb"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_FOREIGN = re.compile(rb"[^A-Za-z0-9+/=]")


class Base64Text:
    """The bytes that a text encodes, in the standard or the URL-safe alphabet.

    White space, missing padding and a prefix such as `data:image/png;base64,` are accepted.

    Attributes:
        data: The bytes so far.
        problem: What is wrong with the text, as the end of a sentence; empty if nothing is.
    """

    def __init__(self) -> None:
        """Begin without text."""
        self.data, self.problem = bytearray(), ""
        self._left, self._begun, self._padded = b"", False, False

    def feed(self, text: bytes) -> None:
        """Decode more text; the first call must bring the whole prefix of a `data:` URL."""
        if not self._begun:
            self._begun, text = True, self._without_prefix(text)
        text = self._left + text.translate(_URL_SAFE, _SPACE)
        whole = len(text) - len(text) % 4
        self._left = text[whole:]
        self._decode(text[:whole])

    def end(self) -> None:
        """Decode what is left."""
        self._decode(self._left + b"=" * (-len(self._left) % 4))

    def _without_prefix(self, text: bytes) -> bytes:
        prefix = _DATA_URL.match(text)
        if prefix and not prefix[0].lower().endswith(b";base64,"):
            self.problem = "is a data: URL without base64; expected data:image/...;base64,..."
        elif not prefix and _ADDRESS.match(text):
            self.problem = "is an address, and this server fetches nothing; send the file in base64"
        return text[prefix.end() :] if prefix else text

    def _decode(self, text: bytes) -> None:
        if self.problem or not text:
            return
        try:
            # Python decodes text that goes on after its padding if it is decoded in parts.
            if self._padded:
                raise Error("text after the padding")
            self.data += a2b_base64(text, strict_mode=True)
        except Error:
            wrong = _FOREIGN.search(text)
            found = f"it has the character {wrong[0].decode('latin-1')!r}" if wrong else "it is cut"
            self.problem = f"is not base64: {found}"
        self._padded = text.endswith(b"=")
