import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent


def imports(folder: str, *, without: tuple[str, ...] = ()) -> dict[str, set[str]]:
    """Return module file → the scda packages it imports anywhere in it."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / folder).glob("*.py")):
        if path.name in without:
            continue
        modules = {
            node.module if isinstance(node, ast.ImportFrom) else name.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in node.names
        }
        found[path.name] = {
            ".".join(m.split(".")[:2]) for m in modules if m and m.startswith("scda")
        }
    return found


def test_models_imports_nothing_of_the_others() -> None:
    assert all(packages <= {"scda.models"} for packages in imports("models").values())


def test_serve_imports_models_alone() -> None:
    allowed = {"scda.models", "scda.serve"}
    assert all(packages <= allowed for packages in imports("serve").values())


def test_only_the_command_line_touches_both_sides() -> None:
    allowed = {"scda.models", "scda.adapt"}
    found = imports("adapt", without=("cli.py",))
    assert all(packages <= allowed for packages in found.values())
