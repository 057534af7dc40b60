"""The pages of measured results: one screen of summary, every page linked, every link good."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
PAGES = [FOLDER / "README.md", *sorted((FOLDER / "results").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def linked(page: Path) -> set[Path]:
    targets = LINK.findall(page.read_text("utf-8"))
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [str(target) for target in linked(page) if not target.exists()] == []


def test_the_summary_is_one_screen_and_links_every_page() -> None:
    readme, *pages = PAGES
    assert len(readme.read_text("utf-8").splitlines()) <= 50
    assert set(pages) <= linked(readme)


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_a_page_states_its_question_command_and_machine(page: Path) -> None:
    text = page.read_text("utf-8")
    if page.name != "running.md":  # describes the commands instead of a result
        assert "**Question.** " in text
        assert "**Machine and date.** " in text
        assert "**Worst first.** " in text
    assert re.search(r"^    (python -m benchmarks\.|scda-adapt |make )", text, re.MULTILINE)
    for module in re.findall(r"python -m benchmarks\.(\w+)", text):
        assert (FOLDER / f"{module}.py").exists(), module
