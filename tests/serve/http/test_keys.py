"""Who may call: the keys, which a file may change while the server runs, and pages elsewhere."""

import logging
from pathlib import Path

import httpx
import pytest

from scda.models.errors import UsageError
from scda.models.predictor import Predictor
from scda.serve.http.application import create_app
from scda.serve.http.keys import Keys
from scda.serve.http.settings import Settings
from tests.serve.http.test_application import ask

SITE = "https://shop.example"


class Clock:
    """The time that the keys see."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("scda.serve.http.keys.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def accepted(keys: Keys, *shown: str) -> list[bool]:
    return [keys.accept(one.encode()) for one in shown]


def test_keys_are_lines_and_comments_are_not(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# of the shop\nfirst\r\n\n  sécond  \n#third\n")
    keys = Keys("fixed", file)
    assert keys.needed
    assert accepted(keys, "first", "sécond", "fixed") == [True] * 3
    for wrong in ("", "#third", "third", "# of the shop", "first\n", "fixe", "first\r\nsécond"):
        assert not keys.accept(wrong.encode())
    assert not Keys().needed
    assert Keys("fixed").needed


def test_a_changed_file_is_read_again_once_a_second(tmp_path: Path, clock: Clock) -> None:
    file = tmp_path / "keys"
    file.write_text("old\n")
    keys = Keys(file=file)
    assert accepted(keys, "old", "newer") == [True, False]
    file.write_text("newer\n")
    assert accepted(keys, "old", "newer") == [True, False]
    clock.now += 1
    assert accepted(keys, "old", "newer") == [False, True]


@pytest.mark.parametrize("damage", ["vanished", "empty", "comments", "binary", "a folder"])
def test_a_damaged_file_leaves_the_last_keys_and_is_logged_once(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    file = tmp_path / "keys"
    file.write_text("secret-key\n")
    keys = Keys(file=file)
    file.unlink()
    if damage == "a folder":
        file.mkdir()
    elif damage != "vanished":
        contents = {"empty": b"", "comments": b"# none\n", "binary": b"\xff\xfe\n"}
        file.write_bytes(contents[damage])
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            clock.now += 1
            assert accepted(keys, "secret-key", "other") == [True, False]
    (record,) = caplog.records
    assert "the last keys stay in use: SCDA_API_KEYS_FILE" in record.getMessage()
    if damage == "a folder":
        file.rmdir()
    file.write_text("another-key\n")
    clock.now += 1
    assert accepted(keys, "secret-key", "another-key") == [False, True]
    assert "secret" not in caplog.text
    assert "another-key" not in caplog.text


def test_a_server_does_not_start_without_its_keys(predictor: Predictor, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for file, found in ((tmp_path / "missing", "cannot read: No such file"), (empty, "no key")):
        settings = Settings(bundle=Path("bundle"), api_keys_file=file)
        with pytest.raises(UsageError, match=f"SCDA_API_KEYS_FILE: .*{found}"):
            create_app(predictor, settings)


def test_each_key_of_the_file_opens_the_server(predictor: Predictor, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("first\nsecond\n")
    app = create_app(predictor, Settings(bundle=Path("bundle"), api_keys_file=file))
    for key, status in (("first", 200), ("second", 200), ("third", 401), ("", 401)):
        headers = {"Authorization": f"Bearer {key}"}
        assert ask(app, "GET", "/v1/model", headers=headers).status_code == status


def preflight(predictor: Predictor, origin: str, *origins: str) -> httpx.Response:
    limits = Settings(bundle=Path("bundle"), api_key="secret", cors_origins=origins)
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    headers["Access-Control-Request-Headers"] = "authorization,content-type"
    return ask(create_app(predictor, limits), "OPTIONS", "/v1/predict", headers=headers)


def test_a_named_site_may_call_and_is_asked_for_the_key_afterwards(predictor: Predictor) -> None:
    answer = preflight(predictor, SITE, SITE)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == SITE
    assert "POST" in answer.headers["access-control-allow-methods"]
    limits = Settings(bundle=Path("bundle"), api_key="secret", cors_origins=(SITE,))
    app = create_app(predictor, limits)
    for key, status in (("secret", 200), ("wrong", 401)):
        headers = {"Origin": SITE, "Authorization": f"Bearer {key}"}
        answer = ask(app, "GET", "/v1/model", headers=headers)
        # An error, too, must be readable for the page.
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == SITE
        assert "X-Request-Id" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize("origins", [(), ("https://other.example",)])
def test_other_sites_may_not_call(predictor: Predictor, origins: tuple[str, ...]) -> None:
    answer = preflight(predictor, SITE, *origins)
    assert answer.status_code in (400, 401)
    assert "access-control-allow-origin" not in answer.headers
