"""Options shared by commands, and the options of `train`, which come from the configuration."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from scda.adapt.config import OPTIONS
from scda.adapt.options import Option
from scda.models.limits import MOST_BYTES, MOST_PIXELS

Quiet = Annotated[bool, typer.Option("--quiet", help="Show only warnings and errors.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show details, and a traceback of an internal error.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Bundle = Annotated[Path, typer.Argument(help="Bundle, or the run that holds it.")]
Provider = Annotated[
    str,
    typer.Option(
        metavar="auto|cpu|cuda|openvino",
        help="Device of the model in ONNX Runtime, or OpenVINO on the CPU.",
    ),
]
Threads = Annotated[
    int, typer.Option(min=0, help="Number of threads of the model; 0 uses all available CPUs.")
]
MaxBytes = Annotated[
    int,
    typer.Option(min=1, max=MOST_BYTES, help="Largest file in bytes.", rich_help_panel="Input"),
]
MaxPixels = Annotated[
    int,
    typer.Option(
        min=1,
        max=MOST_PIXELS,
        help="Largest image in pixels, width times height.",
        rich_help_panel="Input",
    ),
]
Target = Annotated[
    Path | None,
    typer.Option(help="Folder of the target images; default: the folder used for training."),
]


def with_config_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace `**options` of a command by the visible options of the configuration."""
    signature = inspect.signature(command)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    parameters = [*own, *_parameters()]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined] # what Typer reads
    return command


def given(context: typer.Context, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options given on the command line, without those left at their defaults."""
    sources = {name: context.get_parameter_source(name) for name in options}
    return {n: v for n, v in options.items() if (s := sources[n]) and s.name == "COMMANDLINE"}


def _parameters() -> Iterator[inspect.Parameter]:
    for option in OPTIONS.values():
        if option.shown:
            yield _parameter(option, option.name)
            for alias in option.aliases:
                yield _parameter(option, alias, hidden=True)


def _parameter(option: Option, name: str, *, hidden: bool = False) -> inspect.Parameter:
    info = typer.Option(
        help=option.help,
        metavar=option.metavar or "|".join(option.choices) or None,
        rich_help_panel=option.panel,
        show_default=option.default != "",
        hidden=hidden,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=option.default,
        annotation=Annotated[option.type, info],
    )
