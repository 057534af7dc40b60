from pathlib import Path

import pytest

from scda.models.errors import UsageError
from scda.serve.http.settings import FRAMING, Settings


def test_only_the_bundle_has_no_default() -> None:
    settings = Settings.from_environment({"SCDA_BUNDLE": "b", "SCDA_QUEUE": ""})
    assert settings == Settings(bundle=Path("b"))
    for environment in ({}, {"SCDA_BUNDLE": ""}):
        with pytest.raises(UsageError, match="SCDA_BUNDLE is not set"):
            Settings.from_environment(environment)


def test_a_key_from_a_file_may_end_in_a_newline_and_is_never_blank() -> None:
    settings = Settings.from_environment({"SCDA_BUNDLE": "b", "SCDA_API_KEY": "secret\n"})
    assert settings.api_key == "secret"
    with pytest.raises(UsageError, match="SCDA_API_KEY is blank"):
        Settings.from_environment({"SCDA_BUNDLE": "b", "SCDA_API_KEY": " \n"})


def test_the_largest_body_always_fits_into_memory() -> None:
    assert Settings(bundle=Path("b")).held_bytes == 2**28
    assert Settings(bundle=Path("b"), max_bytes=2**30).held_bytes == 2**31
    for max_bytes, max_files in ((1, 1), (1, 10**6), (100, 32), (10**5, 32)):
        tiny = Settings(
            bundle=Path("b"), max_bytes=max_bytes, max_files=max_files, max_held_bytes=1
        )
        base64, binary = max_bytes + max_bytes // 2 + FRAMING, max_bytes + FRAMING + 4 * max_files
        assert tiny.held_bytes >= max(base64, binary)


def test_every_variable_is_read() -> None:
    settings = Settings.from_environment(
        {
            "SCDA_BUNDLE": "b",
            "SCDA_API_KEY": "key",
            "SCDA_API_KEYS_FILE": "keys",
            "SCDA_CORS_ORIGINS": "https://a.example, http://b.example:8080,",
            "SCDA_PUBLIC_METRICS": "1",
            "SCDA_MAX_BYTES": "1",
            "SCDA_MAX_PIXELS": "2",
            "SCDA_MAX_FILES": "3",
            "SCDA_THREADS": "0",
            "SCDA_PROVIDER": "cpu",
            "SCDA_QUEUE": "5",
            "SCDA_MAX_HELD_BYTES": "7",
            "SCDA_UPLOAD_SECONDS": "8",
            "SCDA_TIMEOUT_SECONDS": "9",
            "SCDA_MAX_BATCH": "6",
            "SCDA_MAX_WAIT_MS": "0",
            "SCDA_MAX_CONNECTIONS": "11",
            "SCDA_MAX_CLIENT_CONNECTIONS": "10",
            "SCDA_START_SECONDS": "12",
        }
    )
    assert settings == Settings(
        bundle=Path("b"),
        api_key="key",
        api_keys_file=Path("keys"),
        cors_origins=("https://a.example", "http://b.example:8080"),
        public_metrics=True,
        max_bytes=1,
        max_pixels=2,
        max_files=3,
        threads=0,
        provider="cpu",
        queue=5,
        max_held_bytes=7,
        upload_seconds=8,
        timeout_seconds=9,
        max_batch=6,
        max_wait_ms=0,
        max_connections=11,
        max_client_connections=10,
        start_seconds=12,
    )


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "²", "1e3", " "])
def test_a_wrong_number_is_named(value: str) -> None:
    with pytest.raises(UsageError, match=r"SCDA_QUEUE is .*; expected a whole number, 1 or more"):
        Settings.from_environment({"SCDA_BUNDLE": "b", "SCDA_QUEUE": value})


@pytest.mark.parametrize("value", ["a.example", "https://a.example/", "null", "https://", "a b"])
def test_an_origin_is_an_address_without_a_path(value: str) -> None:
    with pytest.raises(UsageError, match=r"SCDA_CORS_ORIGINS has .*; expected addresses like"):
        Settings.from_environment({"SCDA_BUNDLE": "b", "SCDA_CORS_ORIGINS": value})


def test_a_flag_is_0_or_1() -> None:
    for value, expected in (("0", False), ("", False), ("1", True)):
        environment = {"SCDA_BUNDLE": "b", "SCDA_PUBLIC_METRICS": value}
        assert Settings.from_environment(environment).public_metrics is expected
    with pytest.raises(UsageError, match=r"SCDA_PUBLIC_METRICS is 'yes'; expected 0 or 1"):
        Settings.from_environment({"SCDA_BUNDLE": "b", "SCDA_PUBLIC_METRICS": "yes"})
