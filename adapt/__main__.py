"""The command `scda-adapt`, and the same as `python -m scda.adapt`."""

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; Ctrl-C ends it without a traceback also while it is being loaded."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `run` can say that it was interrupted
    from scda.adapt.cli.main import main as run_commands

    run_commands()


if __name__ == "__main__":
    main()
