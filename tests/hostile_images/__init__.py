"""Image files that ask for work, memory or recursion out of all proportion to their size."""

from pathlib import Path

from tests.hostile_images.jpeg import jpeg_files
from tests.hostile_images.jpeg2000 import jpeg2000_files
from tests.hostile_images.others import other_files
from tests.hostile_images.png import png_files
from tests.hostile_images.tiff import tiff_files

_FAULTS = Path(__file__).parents[1] / "fixtures" / "faults"


def hostile_images() -> dict[str, bytes]:
    """Return every file by its name; making them takes seconds."""
    found = {path.name: path.read_bytes() for path in sorted(_FAULTS.iterdir())}
    made = (jpeg2000_files(), jpeg_files(), png_files(), tiff_files(), other_files())
    for files in made:
        assert not found.keys() & files.keys()
        found |= files
    return found
