"""Debian's Chromium, driven by Playwright, for the tests of pages."""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, Page, expect, sync_playwright

expect.set_options(timeout=30_000)  # a busy machine takes long to answer

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A headless browser for the tests of a module.

    Not for the whole session: as long as Playwright runs, asyncio.run fails in the tests after it.
    """
    path = next(filter(None, map(shutil.which, NAMES)), None)
    assert path, "no Chromium; `make test` installs Debian's as root: apt-get install chromium"
    with sync_playwright() as playwright:
        # Without its sandbox, because tests may run as root; it opens nothing but our own pages.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Browser, url: str, *, width: int = 1280, height: int = 900, dark: bool = False
) -> Iterator[Page]:
    """A page of its own; at the end it must have said nothing and asked no one else."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    page.set_default_timeout(60_000)  # a busy machine takes long to start a page
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    origin = "/".join(url.split("/")[:3])
    page.on(
        "request",
        lambda r: (
            None if r.url.startswith((origin, "data:", "blob:")) else complaints.append(r.url)
        ),
    )
    page.goto(url)
    yield page
    context.close()
    # Chromium reports an answer of 409 (refused) or 507 (not saved) as an error of its own.
    assert [text for text in complaints if "responded with a status of" not in text] == []


@contextmanager
def running(app: FastAPI) -> Iterator[str]:
    """The address of a server that runs the application on a thread."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(60)


def too_wide(page: Page) -> bool:
    """Whether the page can be scrolled sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))
