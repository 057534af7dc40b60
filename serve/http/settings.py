"""The settings of a server, from environment variables; read once when it starts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path

from scda.models.cpus import num_workers, usable_cpus
from scda.models.errors import UsageError
from scda.models.limits import MAX_BYTES, MAX_PIXELS
from scda.serve.http.logs import Style

_ORIGIN = re.compile(r"https?://[^\s/?#@]+")
FRAMING = 64 * 1024  # bytes for what surrounds the files of a form or a JSON document
_MAX_DIGITS = 18  # of a number; Python refuses to read thousands of them


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one server process; the field `x` is the variable SCDA_X."""

    bundle: Path  # SCDA_BUNDLE: folder of a bundle or a run; required
    model_id: str = ""  # SCDA_MODEL_ID: id that its model must have; empty: any
    api_key: str = ""  # SCDA_API_KEY: key for `Authorization: Bearer KEY`; empty: none needed
    api_keys_file: Path | None = None  # SCDA_API_KEYS_FILE: further keys, one a line
    cors_origins: tuple[str, ...] = ()  # SCDA_CORS_ORIGINS: whose pages may call; *: any
    allowed_hosts: tuple[str, ...] = ()  # SCDA_ALLOWED_HOSTS: names in the Host header; *: any
    log: Style = "text"  # SCDA_LOG: text or json
    public_metrics: bool = False  # SCDA_PUBLIC_METRICS: 1 opens /metrics without the key
    max_bytes: int = MAX_BYTES  # SCDA_MAX_BYTES: of one image, and of all images of a request
    max_pixels: int = MAX_PIXELS  # SCDA_MAX_PIXELS: width x height of an image
    max_files: int = 32  # SCDA_MAX_FILES: images in one request
    threads: int = 0  # SCDA_THREADS: threads of the model; 0: all available CPUs
    provider: str = "auto"  # SCDA_PROVIDER: auto, cpu, cuda or openvino
    queue: int = 64  # SCDA_QUEUE: requests at the same time, waiting ones included
    max_batch: int = 0  # SCDA_MAX_BATCH: images per call of the model; 0: 4, on a GPU 32
    max_wait_ms: int = 0  # SCDA_MAX_WAIT_MS: time an image waits for others to fill a batch
    max_held_bytes: int = 256 * 2**20  # SCDA_MAX_HELD_BYTES: of the bodies of all requests
    upload_seconds: int = 30  # SCDA_UPLOAD_SECONDS: for the headers, and then for the body
    max_connections: int = 1024  # SCDA_MAX_CONNECTIONS: open at the same time, of all clients
    max_client_connections: int = 512  # SCDA_MAX_CLIENT_CONNECTIONS: of one client
    keep_alive_seconds: int = 75  # SCDA_KEEP_ALIVE_SECONDS: of a connection without a request
    start_seconds: int = 120  # SCDA_START_SECONDS: until a worker that starts is ready
    drain_seconds: int = 20  # SCDA_DRAIN_SECONDS: for requests under way when the server stops
    timeout_seconds: int = 30  # SCDA_TIMEOUT_SECONDS: from the end of a body to its answer

    @property
    def parallel(self) -> int:
        """Number of images that are decoded, and of calls of the model that run, in parallel."""
        return num_workers(self.threads, self.queue) or usable_cpus()

    @property
    def held_bytes(self) -> int:
        """Bytes of request bodies that may be in memory; the largest body always fits."""
        return max(self.max_held_bytes, 2 * self.max_bytes, self.largest_body)

    @property
    def largest_body(self) -> int:
        """Bytes of the largest body: in base64 with line breaks, and with what frames each file."""
        return self.max_bytes + self.max_bytes // 2 + FRAMING + 4 * self.max_files

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Return the settings in `environment`; an empty variable counts as not set.

        Raises:
            UsageError: If SCDA_BUNDLE is not set, the key is blank, a number is invalid or too
                small, or a flag is neither 0 nor 1.
        """
        bundle = environment.get("SCDA_BUNDLE")
        if not bundle:
            raise UsageError("SCDA_BUNDLE is not set; expected the folder of a bundle or a run")
        return cls(
            bundle=Path(bundle),
            model_id=environment.get("SCDA_MODEL_ID", ""),
            api_key=_key(environment),
            api_keys_file=_path(environment, "SCDA_API_KEYS_FILE"),
            cors_origins=_origins(environment),
            allowed_hosts=_names(environment, "SCDA_ALLOWED_HOSTS"),
            log=_style(environment),
            public_metrics=_flag(environment, "SCDA_PUBLIC_METRICS"),
            max_bytes=_count(environment, "SCDA_MAX_BYTES", cls.max_bytes),
            max_pixels=_count(environment, "SCDA_MAX_PIXELS", cls.max_pixels),
            max_files=_count(environment, "SCDA_MAX_FILES", cls.max_files),
            threads=_count(environment, "SCDA_THREADS", cls.threads, least=0),
            provider=environment.get("SCDA_PROVIDER") or cls.provider,
            queue=_count(environment, "SCDA_QUEUE", cls.queue),
            max_batch=_count(environment, "SCDA_MAX_BATCH", cls.max_batch, least=0),
            max_wait_ms=_count(environment, "SCDA_MAX_WAIT_MS", cls.max_wait_ms, least=0),
            max_held_bytes=_count(environment, "SCDA_MAX_HELD_BYTES", cls.max_held_bytes),
            upload_seconds=_count(environment, "SCDA_UPLOAD_SECONDS", cls.upload_seconds),
            max_connections=_count(environment, "SCDA_MAX_CONNECTIONS", cls.max_connections),
            max_client_connections=_count(
                environment, "SCDA_MAX_CLIENT_CONNECTIONS", cls.max_client_connections
            ),
            keep_alive_seconds=_count(
                environment, "SCDA_KEEP_ALIVE_SECONDS", cls.keep_alive_seconds
            ),
            timeout_seconds=_count(environment, "SCDA_TIMEOUT_SECONDS", 30),
            start_seconds=_count(environment, "SCDA_START_SECONDS", cls.start_seconds),
            drain_seconds=_count(environment, "SCDA_DRAIN_SECONDS", cls.drain_seconds),
        )


def unknown_settings(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable that begins as a setting does and is none."""
    names = {f"SCDA_{field.name.upper()}" for field in fields(Settings)}
    warnings = []
    for name in sorted(environment):
        if name.startswith("SCDA_") and name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            warnings.append(f"{name} is no setting and has no effect{hint}")
    return warnings


def _key(environment: Mapping[str, str]) -> str:
    key = environment.get("SCDA_API_KEY", "")
    if key and not key.strip():
        raise UsageError("SCDA_API_KEY is blank; set it to a key, or unset it to need none")
    return key.strip()  # a secret read from a file may end in a newline


def _path(environment: Mapping[str, str], name: str) -> Path | None:
    text = environment.get(name)
    return Path(text) if text else None


def _origins(environment: Mapping[str, str]) -> tuple[str, ...]:
    text = environment.get("SCDA_CORS_ORIGINS", "")
    origins = tuple(origin for part in text.split(",") if (origin := part.strip()))
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise UsageError(
                f"SCDA_CORS_ORIGINS has {origin!r}; expected addresses like "
                "https://shop.example:8080 without a path, separated by commas, or *"
            )
    return origins


def _names(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    names = (one.strip().lower() for one in environment.get(name, "").split(","))
    return tuple(one for one in names if one)


def _style(environment: Mapping[str, str]) -> Style:
    text = environment.get("SCDA_LOG") or "text"
    if text not in ("text", "json"):
        raise UsageError(f"SCDA_LOG is {text!r}; expected text or json")
    return "json" if text == "json" else "text"


def _flag(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name) or "0"
    if text not in ("0", "1"):
        raise UsageError(f"{name} is {text!r}; expected 0 or 1")
    return text == "1"


def _count(environment: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    text = environment.get(name) or str(default)
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    if not (is_number and int(text) >= least):
        raise UsageError(f"{name} is {text!r}; expected a whole number, {least} or more")
    return int(text)
