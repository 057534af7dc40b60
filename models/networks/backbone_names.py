"""Names of backbones and of their weights, apart from torch, which takes seconds to import."""

from pathlib import Path

from scda.models.errors import UsageError

NAMES = ("efficientnet_lite0", "efficientnet_lite2", "lite0", "lite2", "conv4", "resnet50")
TIMM = "timm/"
JOIN = "+"  # between the names of several backbones


def check_backbone(name: str, weights: Path | None) -> None:
    """Check the name of a backbone, or of several, and that files of weights are there.

    Args:
        name: One of `NAMES`, or `timm/NAME`, or several joined by `+`.
        weights: File of weights, or several joined by `+`; None uses the published weights.

    Raises:
        UsageError: If a name is unknown or a file is missing.
    """
    for part, file in zip(name.split(JOIN), weights_files(name, weights), strict=True):
        if part not in NAMES and not part.startswith(TIMM):
            raise UsageError(
                f"backbone {part!r}, expected {', '.join(NAMES)} or {TIMM}NAME, or several "
                f"joined by {JOIN}"
            )
        if file and not file.is_file():
            raise UsageError(f"{file}: no such weights file")


def weights_files(name: str, weights: Path | None) -> list[Path | None]:
    """Return the file of weights of each backbone in a name; None uses the published weights.

    Raises:
        UsageError: If the numbers of files and backbones differ.
    """
    count = name.count(JOIN) + 1
    if weights is None or count == 1:  # the path of a single file may contain a +
        return [weights] * count
    files = [Path(file) if file else None for file in str(weights).split(JOIN)]
    if len(files) != count:
        raise UsageError(
            f"weights are {weights}; expected a file for each of {name}, joined by {JOIN}, "
            "where an empty one takes the published weights"
        )
    return files
