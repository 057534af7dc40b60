"""The command line reference in Markdown, generated from the commands.

`python -m scda.adapt.cli.reference commands` prints every command with its options, and
`python -m scda.adapt.cli.reference options` the options of the configuration, those of a TOML file
included.
"""

import sys
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import typer

from scda.adapt.cli.main import app
from scda.adapt.config import OPTIONS
from scda.adapt.options import Option

_TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false"}


def commands() -> str:
    """Return the description, usage, arguments and options of every command."""
    group: Any = typer.main.get_command(app)
    return "\n".join(_command(name, command) for name, command in group.commands.items())


def options() -> str:
    """Return the options of the configuration, one table per panel."""
    columns = ["option", "command line", "value", "default", "what it does"]
    by_panel = sorted(OPTIONS.values(), key=lambda option: _panels().index(option.panel))
    tables = [
        f"## {panel}\n\n{_table(columns, map(_option_row, group))}"
        for panel, group in groupby(by_panel, key=lambda option: option.panel)
    ]
    return "\n".join(tables)


def _panels() -> list[str]:
    return list(dict.fromkeys(option.panel for option in OPTIONS.values()))


def _option_row(option: Option) -> list[str]:
    values = option.allowed if option.choices else _TYPES.get(option.type, "whole numbers")
    bounds = "" if option.choices or not option.allowed else f", {option.allowed}"
    default = list(option.default) if isinstance(option.default, tuple) else option.default
    return [
        f"`{option.name}`",
        f"`{_flag(option.name)}`" if option.shown else "",
        values + bounds,
        f"`{_toml(default)}`" if default != "" else "",
        option.help,
    ]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _command(name: str, command: Any) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join(["scda-adapt", name, *command.collect_usage_pieces(context)])
    shown = [p for p in command.get_params(context) if not getattr(p, "hidden", False)]
    columns = ["option", "value", "default", "what it does"]
    rows = [_parameter_row(parameter, context) for parameter in shown]
    return f"## {name}\n\n{command.help}\n\n    {usage}\n\n{_table(columns, rows)}"


def _parameter_row(parameter: Any, context: Any) -> list[str]:
    flags = [*parameter.opts, *parameter.secondary_opts]
    is_argument = parameter.param_type_name == "argument"
    name = parameter.name.upper() if is_argument else ", ".join(flags)
    value = "" if getattr(parameter, "is_flag", False) else parameter.display_type_rich(context)
    return [
        f"`{name}`",
        (value or "").strip("<>").removesuffix(" range").replace("|", ", "),
        "required" if parameter.required else _default(parameter),
        parameter.help or "",
    ]


def _default(parameter: Any) -> str:
    default = parameter.default
    return "" if default is None or default is False or default == "" else f"`{_toml(default)}`"


def _table(columns: list[str], rows: Iterable[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines
    )


if __name__ == "__main__":
    pages = {"commands": commands, "options": options}
    if sys.argv[1:2] == [] or sys.argv[1] not in pages:
        sys.exit("expected `commands` or `options`")
    print(pages[sys.argv[1]](), end="")
