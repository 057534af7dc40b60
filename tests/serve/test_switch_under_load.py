"""Fifty changes of the bundle under sixteen clients: no answer is lost, and each is one model's."""

import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from scda.models.bundle import read_manifest
from tests.bundles import make_bundle, picture
from tests.serving import Server, serving
from tests.waiting import wait_for

RED, CLIENTS, CHANGES = picture("red"), 16, 50
LABELS = (("blue", "green", "red"), ("azure", "lime", "crimson"))  # of the two models


@dataclass
class Runs:
    """Two runs, and the link `current` to one of them."""

    folders: tuple[Path, Path]
    current: Path

    @property
    def ids(self) -> list[str]:
        return [read_manifest(folder / "bundle").id for folder in self.folders]

    def show(self, folder: Path) -> None:
        """Let the link show another run, as `ln -sfn` does."""
        new = self.current.with_name("new")
        new.symlink_to(folder)
        new.replace(self.current)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    folders = []
    for name, labels in zip("ab", LABELS, strict=True):
        (tmp_path / name).mkdir()
        targets = {f"{name}.jpg": "red"}
        make_bundle(tmp_path / name / "bundle", labels=labels, targets=targets)
        folders.append(tmp_path / name)
    runs = Runs((folders[0], folders[1]), tmp_path / "current")
    runs.show(folders[0])
    return runs


@dataclass
class Client:
    """Asks all routes in turn until it is told to stop, and checks that no answer is mixed."""

    server: Server
    of_model: dict[str, tuple[str, str]]  # model id → label of a red image, path of its neighbour
    stop: threading.Event
    seen: set[str] = field(default_factory=set)
    answers: int = 0

    def run(self) -> None:
        with httpx.Client(base_url=self.server.url, timeout=60) as client:
            while not self.stop.is_set():
                self.check(self.ask(client, "/v1/predict", content=RED))
                near = self.ask(client, "/v1/nearest", content=RED)
                model_id = self.check(near["prediction"])
                assert [one["path"] for one in near["images"]] == [self.of_model[model_id][1]]
                files = [("images", RED)] * 3
                batch = self.ask(client, "/v1/predict_batch", files=files)["results"]
                assert len({self.check(one) for one in batch}) == 1
                card = client.get("/v1/model").json()
                labels = [one["label"] for one in card["classes"]]
                assert self.of_model[card["model_id"]][0] in labels

    def ask(self, client: httpx.Client, route: str, **content: Any) -> dict[str, Any]:
        response = client.post(route, **content)
        assert response.status_code == 200, response.text
        self.answers += 1
        return dict(response.json())

    def check(self, prediction: dict[str, Any]) -> str:
        model_id = str(prediction["model_id"])
        assert prediction["label"] == self.of_model[model_id][0]
        assert prediction["label"] in [one["label"] for one in prediction["nearest"]]
        self.seen.add(model_id)
        return model_id


def wait_for_workers(server: Server, count: int, headers: dict[str, str] | None = None) -> None:
    """Wait until so many workers answer."""

    def metrics() -> str:
        return httpx.get(f"{server.url}/metrics", headers=headers, timeout=60).text

    wait_for(lambda: f"scda_workers {float(count)}" in metrics(), True)


def served_by(server: Server) -> set[str]:
    """Ask on new connections, which the workers share, and return the models that answer."""
    with httpx.Client(headers={"Connection": "close"}, timeout=60) as client:
        cards = [client.get(f"{server.url}/v1/model").json() for _ in range(12)]
    return {str(card["model_id"]) for card in cards}


@pytest.mark.slow
def test_no_answer_is_lost_or_mixed_while_the_bundle_changes(runs: Runs) -> None:
    ids = runs.ids
    answers = [("red", "a.jpg"), ("crimson", "b.jpg")]
    stop = threading.Event()
    with serving(runs.current, workers=2) as server, ThreadPoolExecutor(CLIENTS) as threads:
        of_model = dict(zip(ids, answers, strict=True))
        clients = [Client(server, of_model, stop) for _ in range(CLIENTS)]
        running = [threads.submit(client.run) for client in clients]
        memory = {}
        wait_for_workers(server, 2)
        try:
            for number in range(1, CHANGES + 1):
                runs.show(runs.folders[number % 2])
                server.process.send_signal(signal.SIGHUP)
                wait_for(lambda: served_by(server), {ids[number % 2]})
                assert not [one for one in running if one.done()]
                memory[number] = sum(one.memory_info().rss for one in server.workers())
        finally:
            stop.set()
        for one in running:
            one.result(60)
        assert {model_id for client in clients for model_id in client.seen} == set(ids)
        assert all(client.answers > CHANGES for client in clients)
        assert memory[CHANGES] < 1.1 * memory[10]
        print(sum(client.answers for client in clients), "answers", memory[10], memory[CHANGES])


@pytest.mark.slow
def test_a_bundle_that_cannot_be_served_is_refused_and_a_worker_that_dies_comes_back(
    runs: Runs,
) -> None:
    first, second = runs.ids
    key = {"Authorization": "Bearer key"}
    with serving(runs.current, workers=2, SCDA_API_KEY="key") as server:

        def reload() -> httpx.Response:
            return server.client.post("/v1/admin/reload", headers=key)

        model = runs.folders[1] / "bundle" / "model.onnx"
        whole = model.read_bytes()
        model.write_bytes(b"x")
        runs.show(runs.folders[1])
        refused = reload()
        assert refused.status_code == 409
        assert "model.onnx is damaged" in refused.json()["error"]["message"]
        # A worker that dies now comes back with the model of the others, not with what is shown.
        wait_for_workers(server, 2, key)
        server.workers()[0].kill()
        wait_for(lambda: "1 of 2 workers answer" in server.log.read_text(), True)
        wait_for_workers(server, 2, key)
        ids = set()
        for _ in range(20):
            with httpx.Client(headers=key, timeout=60) as client:
                ids.add(client.get(f"{server.url}/v1/model").json()["model_id"])
        assert ids == {first}
        model.write_bytes(whole)
        assert reload().json() == {"model_id": second, "previous_model_id": first}


@pytest.mark.slow
def test_a_worker_that_would_answer_from_another_model_does_not_start(runs: Runs) -> None:
    first, _ = runs.ids
    with serving(runs.folders[0], workers=2) as server:
        wait_for_workers(server, 2)
        shutil.rmtree(runs.folders[0] / "bundle")
        shutil.copytree(runs.folders[1] / "bundle", runs.folders[0] / "bundle")
        server.workers()[0].kill()
        wait_for(lambda: f"expected {first}" in server.log.read_text(), True)
        assert served_by(server) == {first}
        replaced = "scda_bundle_replaced 1.0"  # looked at once a second
        wait_for(lambda: replaced in server.client.get("/metrics").text, True)
