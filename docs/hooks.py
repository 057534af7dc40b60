"""Pages of the site that are generated: the command line reference, and the measured results."""

import os
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand beside the benchmarks."""
    for path in sorted((_ROOT / "benchmarks" / "results").glob("*")):
        files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the generated reference in its place; point links to and from results at the site."""
    if page.file.src_uri == "cli.md":
        from scda.adapt.cli.reference import commands, options

        tables = options().replace("## ", "### ")
        return f"{markdown}\n{commands()}\n## Options of the config file\n\n{tables}\n"
    if page.file.src_uri.startswith("results/"):
        return markdown.replace("../../docs/", "../")
    return markdown.replace("](../benchmarks/results/", "](results/")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make help texts the same width whatever the terminal is."""
    os.environ.setdefault("COLUMNS", "100")
    return config
