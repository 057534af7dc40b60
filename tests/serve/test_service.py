"""The service of BentoML; the program `scda-adapt serve` has its tests in workers/."""

import os
import subprocess
import sys
from pathlib import Path


def test_a_gpu_that_is_not_there_ends_the_start_with_one_line(bundle: Path) -> None:
    code = """
import scda.models.session
scda.models.session.has_driver = lambda: False
from scda.serve.service import load
load()
"""
    environment = os.environ | {"SCDA_BUNDLE": str(bundle), "SCDA_PROVIDER": "cuda"}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        "scda: provider cuda is not available on this machine or in this onnxruntime; "
        "use --provider cpu"
    ]


UNTRACKED = """
from bentoml._internal.utils.analytics import usage_stats

print(usage_stats.do_not_track())  # as `bentoml serve` asks before it imports the service
import scda.serve.service
print(usage_stats.do_not_track())
"""


def test_bentoml_does_not_report_usage_however_it_is_started() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "BENTOML_DO_NOT_TRACK"}
    argv = [sys.executable, "-c", UNTRACKED]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


LOADED = """
import gc
import sys

from scda.serve.service import Classifier, check

assert "prometheus_client" not in sys.modules
check()
Classifier.inject_config()

from _bentoml_impl.server.app import ServiceAppFactory
from starlette.testclient import TestClient

headers = {"Host": "localhost", "Authorization": "Bearer key"}
with TestClient(ServiceAppFactory(Classifier, is_main=True)()) as client:
    for path in ("/x", "/x%0ay"):
        print(client.get(path, headers=headers).json()["error"]["code"])
print(gc.get_freeze_count())
"""


def load(bundle: Path, home: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
    """Load the service as `bentoml serve` does."""
    variables = {"SCDA_BUNDLE": str(bundle), "PROMETHEUS_MULTIPROC_DIR": str(home), **settings}
    argv, environment = [sys.executable, "-c", LOADED], {**os.environ, **variables}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)


def test_what_a_worker_loads_is_kept_in_memory_and_an_operator_is_warned(
    bundle: Path, tmp_path: Path
) -> None:
    done = load(bundle, tmp_path, SCDA_QEUE="7")
    *codes, frozen = done.stdout.split()
    assert codes == ["not_found", "not_found"]  # in our shape, whatever the path
    assert int(frozen) > 10_000  # objects that the garbage collector leaves out
    assert not list(tmp_path.iterdir())  # metrics in files: a full disk would kill the worker
    misspelt, open_to_all = (line for line in done.stderr.splitlines() if "WARNING" in line)
    assert "SCDA_QEUE is no setting and has no effect; did you mean SCDA_QUEUE?" in misspelt
    assert "without a key" in open_to_all
    assert "WARNING" not in load(bundle, tmp_path, SCDA_API_KEY="key").stderr
