"""The exemplars, the most typical images of each class, held in memory as they were verified."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scda.models.bundle import Manifest, open_verified
from scda.models.names import Names
from scda.serve.http.errors import RequestError

ROUTE = "/v1/exemplars/{class_id}/{n}"


@dataclass(frozen=True)
class Exemplar:
    """One exemplar: the bytes of a small JPEG, and their ETag."""

    data: bytes
    tag: str


class Exemplars:
    """The exemplars by class id and number; clients cannot reach any other file."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Read the exemplars that the manifest of the bundle at `folder` lists.

        Raises:
            GateError: If one of them is missing or damaged.
        """
        self._model_id = manifest.id
        self._by_class: Mapping[str, tuple[Exemplar, ...]] = {
            info.class_id: tuple(_read(folder, manifest, name) for name in info.exemplars)
            for info in manifest.classes
        }

    def addresses(self, class_id: str, names: Names) -> tuple[str, ...]:
        """Return the addresses of a class's exemplars, its own before those of merged classes.

        An address names the model: another model has another image under the same path.
        """
        members = [other for other in self._by_class if names.resolve(other) == class_id]
        return tuple(
            f"{ROUTE.format(class_id=member, n=number)}?model={self._model_id}"
            for member in sorted(members, key=lambda other: other != class_id)
            for number in range(len(self._by_class[member]))
        )

    def exemplar(self, class_id: str, number: int, *, model_id: str = "") -> Exemplar:
        """Return one exemplar.

        Args:
            class_id: The class.
            number: Its number, from 0.
            model_id: The model that it must belong to; empty for any.

        Raises:
            RequestError: With code `not_found`, if there is no such class or exemplar, or if it
                belongs to another model.
        """
        if model_id and model_id != self._model_id:
            raise RequestError(
                "not_found",
                f"this exemplar is one of the model {model_id[:40]!r}; the server has the model "
                f"{self._model_id!r} now",
            )
        found = self._by_class.get(class_id, ())
        if not 0 <= number < len(found):
            raise RequestError("not_found", f"class {class_id!r} has no exemplar {number}")
        return found[number]


def _read(folder: Path, manifest: Manifest, name: str) -> Exemplar:
    with open_verified(folder, manifest, name) as file:
        return Exemplar(file.read(), f'"{manifest.files[name][:16]}"')
