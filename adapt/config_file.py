"""The configuration from a TOML file and from options that were given."""

import tomllib
from pathlib import Path
from typing import Any

from scda.adapt.config import OPTIONS, RENAMED, TrainConfig
from scda.adapt.options import current_names
from scda.models.errors import UsageError


def resolve(options: dict[str, Any], config_file: Path | None = None) -> TrainConfig:
    """Return the config: option before config file before preset before default.

    Args:
        options: Values by name; None stands for a value that was not given.
        config_file: TOML file with options by name.

    Raises:
        UsageError: If an option is unknown or wrong, or the file cannot be read.
    """
    given = {name: value for name, value in options.items() if value is not None}
    given = current_names(RENAMED, given)
    from_file = _read(config_file) if config_file else {}
    preset = given.get("preset", from_file.get("preset", OPTIONS["preset"].default))
    return TrainConfig.from_preset(**{**from_file, **given, "preset": preset})


def _read(path: Path) -> dict[str, Any]:
    try:
        stored = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot read the config: {error}") from None
    named = current_names(RENAMED, stored)
    fields = {n: tuple(v) if isinstance(v, list) else v for n, v in named.items()}
    for name, value in fields.items():
        if name not in OPTIONS:
            raise UsageError(f"{path}: no option {name!r}; expected {', '.join(sorted(OPTIONS))}")
        try:
            OPTIONS[name].check(value)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
    return fields
