"""`scda-adapt`: all commands in one application; a command imports what it needs when it runs."""

from typing import NoReturn

import typer

from scda.adapt.cli.audit import audit
from scda.adapt.cli.demo import demo
from scda.adapt.cli.doctor import doctor
from scda.adapt.cli.drift import drift
from scda.adapt.cli.errors import run
from scda.adapt.cli.evaluate import evaluate
from scda.adapt.cli.export import export
from scda.adapt.cli.inspect import inspect
from scda.adapt.cli.label import label
from scda.adapt.cli.names import names
from scda.adapt.cli.pick import pick
from scda.adapt.cli.promote import promote
from scda.adapt.cli.report import report
from scda.adapt.cli.review import review
from scda.adapt.cli.serve import serve
from scda.adapt.cli.train import train

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Adapt a classifier to an unlabelled folder: find, count and serve its new classes.",
)
for command in (
    *(train, label, serve),
    *(audit, evaluate, drift, review, names, promote, pick),
    *(export, inspect, report, doctor, demo),
):
    app.command()(command)


def main() -> NoReturn:
    """Run the command line and exit."""
    run(app)
