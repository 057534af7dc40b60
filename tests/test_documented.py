"""Every command of the documentation runs, in a folder that has what the pages speak of."""

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import typer
from PIL import Image

from scda.adapt.cli.main import app
from tests import bundles
from tests.conftest import HIDDEN, KNOWN, TinyData, picture
from tests.documented import PAGES, ROOT, commands
from tests.serving import free_port
from tests.waiting import wait_for

SKIPPED = {  # a part of the command → why it is not run here
    "docker ": "needs Docker; tests/test_deploy.py runs the steps of the image",
    "make ": "runs in the repository; the tests of packages and of the bento build the same",
    "pip install": "changes an environment; the tests of packages and of the bento do it",
    "torchrun ": "tests/adapt/runtime/test_distributed.py starts it",
    "--engine ray": "needs a cluster or a store; tests/serve/labelling/ray has both",
    "export RAY_ADDRESS": "as the line after it",
    "--precision": "its gate needs a real backbone; tests/test_precisions.py exports one",
    "=openvino": "needs OpenVINO; tests/test_precisions.py starts a server with it",
}
# Seconds of training instead of minutes; every option that a page gives counts all the same.
QUICK = """\
backbone = "conv4"
weights = "{weights}"
pretrain_steps = 60
round_steps = 40
rounds = 2
batch_size = 16
k_max = 6
novel = "yes"
"""
PLACEHOLDERS = {
    r"\bBUNDLE\b": "run",
    r"\bIMAGES\.\.\.": "photos",
    r"\bFILE\b": "labels.csv",
    r"[][]": "",
    "/data/(photos|run)": r"$PWD/\1",
}
RUNNING = re.compile(r"(\w+=\S+ )*(scda-adapt (serve|review)|bentoml serve) ")
MANY = 11  # discovered classes, for the page that names, merges and drops some


def is_run(command: str) -> bool:
    return not any(part in command for part in SKIPPED)


def to_run(page: Path) -> list[str]:
    return [re.sub(r" +#.*", "", command) for command in commands(page) if is_run(command)]


RUN = [page for page in PAGES if to_run(page) and page.name != "index.md"]  # as the README


def test_the_reasons_to_skip_are_needed() -> None:
    assert to_run(ROOT / "docs" / "index.md") == to_run(ROOT / "README.md")
    assert sum(len(to_run(page)) for page in RUN) > 40
    found = [command for page in PAGES for command in commands(page)]
    for part in SKIPPED:
        assert any(part in command for command in found), part


def test_every_option_that_the_text_names_exists() -> None:
    """Also of commands in a sentence, which nobody runs."""
    group = typer.main.get_command(app)
    known = {"COMMAND": {"--help"}}  # any of them
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        options = [[*one.opts, *one.secondary_opts] for one in command.params]
        known[name] = {"--help", *itertools.chain(*options)}
    checked = 0
    for page in PAGES:
        for name, rest in re.findall(r"scda-adapt (\w+)([^`\n|]*)", page.read_text()):
            assert name in known, (page.name, name)
            for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", rest.partition("  #")[0]):
                assert option in known[name], (page.name, name, option)
                checked += 1
    assert checked > 50


class Shell:
    """Runs the commands of one page in one folder; a server runs until the next one starts."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.server: subprocess.Popen[bytes] | None = None
        self.log = folder / "server.log"
        unset = {name for name in os.environ if name.startswith(("SCDA_", "PROMETHEUS_"))}
        self.environment = {k: v for k, v in os.environ.items() if k not in unset} | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "XDG_CACHE_HOME": str(folder / "home" / "cache"),
            "BENTOML_HOME": str(folder / "home" / "bentoml"),
            "BENTOML_DO_NOT_TRACK": "True",
            "BROWSER": "true",  # the page of `review` opens in the program `true`
        }

    def run(self, command: str) -> None:
        """Run a command as it is written, but for placeholders, the port, and a quick training."""
        for written, here in PLACEHOLDERS.items():
            command = re.sub(written, here, command)
        command = command.replace("3000", str(self.port))
        if "scda-adapt train" in command:
            command += " --config quick.toml"
        if "scda-adapt audit" in command:  # the backbone of the quick training
            weights = tomllib.loads((self.folder / "quick.toml").read_text())["weights"]
            command += f" --backbone conv4 --weights {weights}"
        if RUNNING.match(command):
            self._serve(command)
            return
        if self.server:
            command = command.replace("PID", str(self.server.pid))
        script = f'curl() {{ command curl --fail --silent --show-error "$@"; }}\n{command}'
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)

    def _serve(self, command: str) -> None:
        self.stop()
        environment = dict(self.environment)
        if "serve" in command and "--port" not in command:
            command += f" --port {self.port}"
        if "runs/current" in command:  # the page shows the key with the next request
            environment["SCDA_API_KEY"] = "KEY"
        words = ["bash", "-ec", re.sub(r"(scda-adapt|bentoml) ", r"exec \1 ", command, count=1)]
        with self.log.open("wb") as log:
            self.server = subprocess.Popen(
                words, cwd=self.folder, env=environment, stdout=log, stderr=log
            )
        wait_for(lambda: self._answers("review" in command), True)

    def _answers(self, review: bool) -> bool:
        text = self.log.read_text()
        assert self.server is not None
        assert self.server.poll() is None, text
        if review:
            return "http://127.0.0.1:" in text
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        """End the server as Ctrl-C does."""
        if self.server:
            self.server.send_signal(signal.SIGINT)
            self.server.wait(120)
            assert "Traceback" not in self.log.read_text(), self.log.read_text()
        self.server = None


@pytest.fixture
def folder(tiny: TinyData, tiny_run: Path, tmp_path: Path, many: None) -> Path:
    """A folder with everything that the pages speak of."""
    (tmp_path / "home").mkdir()
    for name in ("labelled", "photos"):
        shutil.copytree(tiny.source, tmp_path / name)
    for name, renamed in (("blue_disc", "dog"), ("green_bar", "2026-01")):
        (tmp_path / "photos" / name).rename(tmp_path / "photos" / renamed)
    for path in list((tmp_path / "photos" / "2026-01").iterdir()):
        Image.open(path).save(path.with_suffix(".jpg"))
        path.unlink()
    for name in ("new", "next-month", "new_photos"):
        shutil.copytree(tiny.target, tmp_path / name)
    one, two, *_ = sorted(tiny.target.iterdir())
    for name in ("photo.jpg", "a.jpg", "new_photos/0007.jpg"):
        Image.open(one).save(tmp_path / name)
    for name in ("b.jpg", "new_photos/0112.jpg"):
        Image.open(two).save(tmp_path / name)
    for name in ("january", "february"):
        (tmp_path / "months" / name).mkdir(parents=True)
    for path in tiny.target.iterdir():
        shutil.copy(path, tmp_path / "months" / "january")
    generator = np.random.default_rng(1)
    for name, number in itertools.product((*KNOWN, *HIDDEN), range(12)):
        image = picture(name, generator, light=0.8)
        image.save(tmp_path / "months" / "february" / f"{name}-{number}.png")
    (tmp_path / "last-run").touch()
    os.utime(tmp_path / "last-run", (0, 0))
    shutil.copytree(tiny_run, tmp_path / "run")
    bundles.make_bundle(tmp_path / "many", num_discovered=MANY)
    for name, number in (("run-7", 1), ("run-8", 2)):
        (tmp_path / "runs" / name).mkdir(parents=True)
        bundles.make_bundle(tmp_path / "runs" / name / "bundle", num_discovered=number)
    (tmp_path / "quick.toml").write_text(QUICK.format(weights=tiny.weights))
    return tmp_path


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours for many discovered classes."""
    further = [f"shade-{number}" for number in range(MANY - 2)]
    for number, name in enumerate(further):
        monkeypatch.setitem(bundles.RGB, name, (20 * number, 120, 40 + 10 * number))
    monkeypatch.setattr(bundles, "DISCOVERED", (*bundles.DISCOVERED, *further))


@pytest.fixture
def shell(folder: Path) -> Iterator[Shell]:
    shell = Shell(folder, free_port())
    yield shell
    if shell.server:
        shell.server.kill()
        shell.server.wait()


@pytest.mark.slow  # starts the real programs, and trains
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(
    page: Path, shell: Shell, request: pytest.FixtureRequest
) -> None:
    found = to_run(page)
    if any(re.search(r"train .*--out run( --dry-run)?$", command) for command in found):
        shutil.rmtree(shell.folder / "run")
    if any(command.startswith("bentoml export") for command in found):
        project = shell.folder / "project"
        shutil.copytree(request.getfixturevalue("distributions"), project / "wheels")
        shutil.copy(ROOT / "bentofile.yaml", project)
        shell.run("cd project && bentoml build")  # as `make bento` does
    if any(command.startswith("scda-adapt promote") for command in found):
        shell.run("scda-adapt names run --set discovered-000=pen")  # on the page of `review`
    before = set(os.listdir("/"))
    for command in found:
        if re.match(r"scda-adapt names run(?!-)", command):  # not run-january
            command = command.replace(" run", " many", 1)
        if "--after run" in command and not (shell.folder / "run").exists():
            shutil.copytree(request.getfixturevalue("tiny_run"), shell.folder / "run")
        print(command)
        shell.run(command)
    shell.stop()
    assert set(os.listdir("/")) == before
