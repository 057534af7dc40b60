import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEAVY = ("torch", "timm", "numpy", "onnxruntime", "bentoml", "sklearn", "faiss", "PIL")


def run(code: str, *words: object) -> str:
    """What `code` prints in an interpreter of its own."""
    argv = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["label", "--help"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = f"""
import sys
from scda.adapt.cli.main import app
app(sys.argv[1:], standalone_mode=False)
print("heavy:", sorted({HEAVY} & sys.modules.keys()))
""".replace(f"{HEAVY}", f"set({HEAVY})")
    assert run(code, *words).splitlines()[-1] == "heavy: []"


# config.py as it would be with one more field; nothing else knows of it.
ONE_MORE = """
import json, sys, types
from pathlib import Path

path = Path({config!r})
text = path.read_text().replace(
    "    def __post_init__",
    "    patience: int = option("
    "3, panel='Training', minimum=1, aliases=('wait',), help='Wait.')\\n\\n"
    "    def __post_init__",
    1,
)
module = sys.modules["scda.adapt.config"] = types.ModuleType("scda.adapt.config")
exec(compile(text, path, "exec"), module.__dict__)

import typer
from scda.adapt.cli import reference
from scda.adapt.cli.options import given, with_config_options
from scda.adapt.cli.main import app
from scda.adapt.config_file import resolve
from scda.models.errors import UsageError

@with_config_options
def fit(context: typer.Context, config: Path | None = None, **options):
    print(resolve(given(context, options), config).patience)

alone = typer.Typer()
alone.command()(fit)
for words in ([], ["--patience", "5"], ["--wait", "6"], ["--config", sys.argv[1]]):
    alone(words, standalone_mode=False)
try:
    alone(["--patience", "0"], standalone_mode=False)
except UsageError as error:
    print(error)
print("patience" in reference.options(), "--patience" in reference.commands())
print("--wait" in reference.commands())
"""


def test_an_option_is_stated_once(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("patience = 7\n")
    code = ONE_MORE.format(config=str(ROOT / "adapt" / "config.py"))
    assert run(code, tmp_path / "run.toml").splitlines() == [
        *("3", "5", "6", "7"),
        "patience is 0; expected at least 1 and at most 100000",
        "True True",
        "False",
    ]


def test_the_reference_names_every_command_and_option() -> None:
    code = """
import json
from scda.adapt.cli import reference
from scda.adapt.config import OPTIONS
print(json.dumps([reference.commands(), reference.options(), list(OPTIONS)]))
"""
    commands, options, names = json.loads(run(code))
    for command in ("train", "label", "serve", "evaluate", "review", "names", "promote"):
        assert f"## {command}\n" in commands
    assert "`--k-max` | int | `40` | Largest number of new classes considered. |" in commands
    assert "--iterations" not in commands
    assert all(f"| `{name}` |" in options for name in names)
    assert "more than 0 and less than 1 | `0.001` | Learning rate. |" in options
