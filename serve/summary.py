"""What a person is told when a labelling is done."""

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What one labelling did."""

    labels: dict[str, int]  # class label → files, most frequent first
    errors: dict[str, int]  # error code → files, most frequent first
    hidden: int  # files and folders passed over because their name starts with a dot
    seconds: float
    provider: str  # what ran the model: cpu or cuda
    model_id: str
    names_version: int

    @property
    def num_failed(self) -> int:
        """How many files have an error row."""
        return sum(self.errors.values())

    @property
    def num_files(self) -> int:
        """How many files have a row."""
        return sum(self.labels.values()) + self.num_failed

    @property
    def images_per_second(self) -> float:
        """Files per second, bad ones included."""
        return self.num_files / max(self.seconds, 1e-9)

    def to_json(self) -> dict[str, Any]:
        """Return the fields, the totals and the rate as plain JSON values."""
        return {
            **dataclasses.asdict(self),
            "files": self.num_files,
            "failed": self.num_failed,
            "images_per_second": round(self.images_per_second, 2),
        }

    def lines(self) -> list[str]:
        """Return the summary as a person reads it."""
        return [
            f"{self.num_files} files in {self.seconds:.1f} s, "
            f"{self.images_per_second:.1f} images/s on {self.provider}",
            *(f"{count:8}  {label}" for label, count in self.labels.items()),
            *(f"{count:8}  error: {code}" for code, count in self.errors.items()),
            *([f"{self.hidden:8}  hidden, passed over"] if self.hidden else []),
        ]
