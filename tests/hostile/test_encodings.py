"""No file of ours depends on the encoding of the user's locale, which may lack a character."""

import ast
import sys
from pathlib import Path

import pytest

from scda.serve.files.class_folders import folder_names

ROOT = Path(__file__).parents[2]
TEXT = {"read_text": 1, "write_text": 2}  # number of positional arguments with an encoding


def without_encoding(module: ast.Module) -> list[int]:
    """The lines of calls that read or write text in the encoding of the locale."""
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call)]
    return [call.lineno for call in calls if _is_text(call) and not _has_encoding(call)]


def _is_text(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
    writes = [mode for mode in modes if mode in ("r", "w", "a", "x", "r+", "w+")]
    return name in TEXT or (name in ("open", "fdopen") and bool(writes))


def _has_encoding(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", "")
    named = any(keyword.arg in ("encoding", None) for keyword in call.keywords)
    return named or (name in TEXT and len(call.args) >= TEXT[name])


def test_what_is_found() -> None:
    code = "a.read_text()\na.write_text(b)\nopen(a, 'w')\na.read_text('x')\na.open('rb')\n"
    assert without_encoding(ast.parse(code)) == [1, 2, 3]


def test_every_text_file_names_its_encoding() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for folder in ("adapt", "models", "serve", "scda")
        for path in (ROOT / folder).rglob("*.py")
        if any(f"{name}(" in (code := path.read_text("utf-8")) for name in (*TEXT, "open"))
        for line in without_encoding(ast.parse(code))
    }
    assert found == set()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "euc-jp", "cp1251", "utf-8"])
def test_a_folder_has_a_name_that_the_file_system_can_hold(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: encoding)
    labels = {"1": "café", "2": "日本", "3": "ёж", "4": "\udcff", "5": "cup"}
    names = folder_names(labels)
    assert all(name.encode(encoding) and "?" not in name for name in names.values())
    assert len(set(names.values())) == len(labels)
    assert names["5"] == "cup"
    assert (names["2"] == "日本") == (encoding in ("euc-jp", "utf-8"))
