"""The files under deploy/ and docker/ are valid, and name only what exists."""

import json
import os
import re
import shlex
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest
import yaml

from scda.models.predictor import load_predictor
from scda.models.target_figures import TargetFigures
from scda.serve.http.application import create_app
from scda.serve.http.settings import Settings
from scda.serve.workers.supervisor import PATIENCE_SECONDS
from tests.bundles import make_bundle, picture
from tests.locked import Room
from tests.serve.http.test_application import ask

ROOT = Path(__file__).parent.parent
DEPLOY, DOCKER = ROOT / "deploy", ROOT / "docker"
_MAX_LAYERS = 900  # MB
_BASE = 130  # MB of python:3.11-slim, unpacked


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all series that a server shows after an answer."""
    figures = TargetFigures(images=40, outlier_share=0.025, mean_confidence=0.9)
    folder = make_bundle(tmp_path_factory.mktemp("deploy") / "bundle", on_target=figures)
    predictor = load_predictor(folder, provider="cpu", threads=1)
    app = create_app(predictor, Settings(bundle=folder, threads=1))
    assert ask(app, "POST", "/v1/predict", content=picture("red")).status_code == 200
    text = ask(app, "GET", "/metrics").text
    return {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[0] != "#"}


def named(text: str) -> set[str]:
    return set(re.findall(r"\bscda_[a-z_]+\b", text))


def test_the_dashboard_asks_for_metrics_that_exist(metrics: set[str]) -> None:
    board = json.loads((DEPLOY / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(queries) >= 10
    for query in queries:
        assert named(query), query
        assert named(query) <= metrics
        assert query.count("(") == query.count(")")
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_the_queries_of_the_documentation_ask_for_metrics_that_exist(metrics: set[str]) -> None:
    text = (ROOT / "docs" / "serving.md").read_text().partition("\n## Metrics\n")[2]
    queries = [line for line in text.splitlines() if line.startswith("  ") and "scda_" in line]
    assert len(queries) > 8
    for query in queries:
        assert named(query) <= metrics, query


def test_the_settings_named_exist() -> None:
    known = {f"SCDA_{name.upper()}" for name in Settings.__dataclass_fields__}
    for path in (*DEPLOY.iterdir(), *DOCKER.iterdir()):
        found = set(re.findall(r"\bSCDA_[A-Z_]+\b", path.read_text()))
        assert found <= known | {"SCDA_BUNDLE_DIR"}, path


def kubernetes() -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return {document["kind"]: document for document in documents}


def test_a_pod_is_probed_drained_bounded_and_writes_nothing() -> None:
    found = kubernetes()
    pod = found["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    for probe in ("readinessProbe", "startupProbe"):
        assert container[probe]["httpGet"]["path"] == "/readyz"
    (_, seconds) = container["lifecycle"]["preStop"]["exec"]["command"]
    stopping = int(seconds) + Settings.drain_seconds + PATIENCE_SECONDS
    assert pod["spec"]["terminationGracePeriodSeconds"] >= stopping
    assert {"memory"} <= container["resources"]["limits"].keys()
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]}
    for kind in ("Service", "PodDisruptionBudget"):
        selector = found[kind]["spec"]["selector"]
        assert selector.get("matchLabels", selector) == pod["metadata"]["labels"]


def test_compose_starts_the_image_locked_up() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    server = services["scda"]
    assert (ROOT / "deploy" / server["build"]["context"]).resolve() == ROOT.resolve()
    assert (ROOT / server["build"]["dockerfile"]).is_file()
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    assert "ports" not in server  # behind the proxy
    assert (DEPLOY / "nginx.conf").is_file()


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.gpu"])
def test_an_image_has_no_compiler_and_no_root(name: str) -> None:
    lines = instructions(name)
    words = " ".join(lines)
    assert "build-essential" not in words
    assert "--only-binary=:all:" in words
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == ["10001"]
    assert json.loads(lines[-1].removeprefix("CMD "))[:2] == ["scda-adapt", "serve"]


def instructions(name: str) -> list[str]:
    text = (DOCKER / name).read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.slow
def test_the_steps_of_the_image_give_a_server_of_the_promised_size(
    distributions: Path, tmp_path: Path
) -> None:
    """The steps run in an empty folder, in place of the image's root."""
    (tmp_path / "wheels").mkdir()
    (wheel,) = distributions.glob("*.whl")
    (tmp_path / "wheels" / wheel.name).write_bytes(wheel.read_bytes())
    venv.create(tmp_path / "root", with_pip=True)
    for line in instructions("Dockerfile"):
        if line.startswith("RUN pip"):
            step = line.removeprefix("RUN ").replace("/wheels", shlex.quote(f"{tmp_path}/wheels"))
            path = {"PATH": f"{tmp_path}/root/bin:/usr/bin:/bin", "PIP_INDEX_URL": ""}
            environment = {**os.environ, **path}
            del environment["PIP_INDEX_URL"]
            subprocess.run(["sh", "-ec", step], env=environment, check=True, capture_output=True)
    files = [path for path in (tmp_path / "root" / "lib").rglob("*") if path.is_file()]
    megabytes = sum(path.lstat().st_size for path in files) / 10**6
    assert megabytes + _BASE < _MAX_LAYERS
    assert not list((tmp_path / "root" / "lib").glob("python*/site-packages/torch"))
    # The command of the image, as its user, where nothing but /tmp can be written.
    make_bundle(tmp_path / "bundle")
    (tmp_path / "red.jpg").write_bytes(picture("red"))
    command = json.loads(instructions("Dockerfile")[-1].removeprefix("CMD "))
    program = tmp_path / "root" / "bin" / command[0]
    words = [word.replace("/bundle", str(tmp_path / "bundle")) for word in command[1:]]
    done = Room(tmp_path, uid=10001).run(program, *words, images=[tmp_path / "red.jpg"])
    assert [answer.get("label") for answer in done.answers] == ["red"], done.err
    assert done.code == 0


@pytest.mark.slow
def test_nginx_and_kubernetes_know_every_word(tmp_path: Path) -> None:
    """Their parsers run in an environment of their own."""
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    packages = ["crossplane", "kubernetes-validate"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    code = "import crossplane, sys; print(crossplane.parse(sys.argv[1])['errors'])"
    found = subprocess.run(
        [python, "-c", code, DEPLOY / "nginx.conf"], capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"
    validate = str(tmp_path / "env" / "bin" / "kubernetes-validate")
    subprocess.run([validate, "--strict", str(DEPLOY / "kubernetes.yaml")], check=True)
