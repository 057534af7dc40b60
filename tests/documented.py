"""The commands of the documentation, as people read them."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
_PROGRAMS = (
    *("scda-adapt", "bentoml", "torchrun", "python", "pip", "make", "docker", "curl", "kill", "ln"),
    *("mkdir", "tar", "cp", "find", "echo", "export"),
)
_COMMAND = re.compile(rf"(\w+=\S* |\(cd \S+ && )*({'|'.join(_PROGRAMS)}) ")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$|((?:^    .*\n)(?:^    .*\n|^\n)*)", re.M | re.S)


def commands(page: Path) -> list[str]:
    """Return the commands in the blocks of a page, in their order, each on one line."""
    found = []
    for language, fenced, indented in _BLOCK.findall(page.read_text()):
        if language not in ("", "sh"):
            continue
        text = re.sub(r" *\\\n *", " ", fenced or indented)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        shell = [line for line in lines if _COMMAND.match(line)]
        assert language != "sh" or shell == lines, (page.name, lines)
        found += shell
    return found
