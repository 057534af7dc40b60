"""What a file that is no image looks like, in words for people."""

import re
from codecs import getincrementaldecoder

HEAD = 512  # bytes of a file that are looked at

# Offset in the file, bytes there, and what such a file is.
_SIGNATURES = (
    (0, b"%PDF", "a PDF document"),
    (0, b"%!PS", "a PostScript drawing"),
    (0, b"PK\x03\x04", "a ZIP archive or an office document"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"Rar!", "a RAR archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (257, b"ustar", "a tar archive"),
    (4, b"ftypcrx ", "a camera raw file"),
    (0, b"FUJIFILMCCD-RAW", "a camera raw file"),
    (4, b"ftypM4A", "a sound"),
    (4, b"ftyp", "a video"),
    (4, b"moov", "a video"),
    (8, b"AVI ", "a video"),
    (0, b"\x1aE\xdf\xa3", "a video"),
    (0, b"\x00\x00\x01\xba", "a video"),
    (8, b"WAVE", "a sound"),
    (0, b"ID3", "a sound"),
    (0, b"OggS", "a sound"),
    (0, b"fLaC", "a sound"),
    (0, b"8BPS", "a Photoshop document"),
    (0, b"\x00\x00\x01\x00", "an icon (ICO)"),
    (0, b"\xff\x0a", "a JPEG XL image"),
    (0, b"\x00\x00\x00\x0cJXL ", "a JPEG XL image"),
    (0, b"v/1\x01", "an OpenEXR image"),
    (128, b"DICM", "a DICOM file"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\x89HDF", "an HDF5 file"),
    (0, b"SQLite format 3", "an SQLite database"),
    (0, b"\x7fELF", "a program"),
    (0, b"MZ", "a program"),
    (0, b"version https://git-lfs", "a pointer of Git LFS, whose file `git lfs pull` fetches"),
)
_TEXTS = (
    (re.compile(rb"<!doctype html|<html", re.IGNORECASE), "an HTML page"),
    (re.compile(rb"<svg|<\?xml[^\0]*<svg"), "an SVG drawing"),
    (re.compile(rb"<\?xml"), "an XML document"),
    (re.compile(rb"[{\[]\s*[\[{}\]\"\d-]"), "JSON"),
    (re.compile(rb"data:[^\0]*,", re.IGNORECASE), "a data: URL, which must be decoded first"),
    (re.compile(rb"https?://", re.IGNORECASE), "an address, and nothing is fetched"),
    # The beginnings of JPEG, PNG, GIF, WebP and BMP; or nothing but letters and digits for long.
    (
        re.compile(rb"/9j/|iVBORw0K|R0lGOD|UklGR|[A-Za-z0-9+/_\r\n-]{64}"),
        "base64 text, which must be decoded first",
    ),
)
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def describe(data: bytes) -> str:
    """Return what a file looks like, as the end of a sentence that begins with "this looks like".

    Args:
        data: The file, or its first `HEAD` bytes.
    """
    head = data[:HEAD]
    for offset, signature, words in _SIGNATURES:
        if head.startswith(signature, offset):
            return words
    if not any(head):
        return "a damaged file, which begins with zeros"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    for pattern, words in _TEXTS:
        if pattern.match(text):
            return words
    return (
        "text" if _is_text(head) else f"no known format (its first bytes are {head[:4].hex(' ')})"
    )


def _is_text(head: bytes) -> bool:
    if _CONTROL.search(head):
        return False
    try:
        getincrementaldecoder("utf-8")().decode(head)  # its last character may be cut
    except UnicodeDecodeError:
        return False
    return True
