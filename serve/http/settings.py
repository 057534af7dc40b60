"""What a server may be told, by environment variables; read once at start, never at import."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scda.models.errors import UsageError
from scda.models.images import MAX_BYTES, MAX_PIXELS


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The limits and choices of one server process."""

    bundle: Path  # SCDA_BUNDLE: a bundle or a run; there is no default
    api_key: str = ""  # SCDA_API_KEY: wanted as `Authorization: Bearer KEY`; empty asks for none
    public_metrics: bool = False  # SCDA_PUBLIC_METRICS: 1 lets /metrics be read without the key
    max_bytes: int = MAX_BYTES  # SCDA_MAX_BYTES: of one image, and of all images of one request
    max_pixels: int = MAX_PIXELS  # SCDA_MAX_PIXELS: width x height, as the header states them
    max_files: int = 32  # SCDA_MAX_FILES: images in one request
    threads: int = 0  # SCDA_THREADS: of the model; 0 takes the CPUs this process may use
    provider: str = "auto"  # SCDA_PROVIDER: auto, cpu or cuda
    queue: int = 64  # SCDA_QUEUE: requests read, waiting or worked on at once
    max_batch: int = 0  # SCDA_MAX_BATCH: images per call of the model; 0: 8, on a GPU 32
    max_wait_ms: int = 0  # SCDA_MAX_WAIT_MS: an image waits so long for others; 0: never idle
    timeout_seconds: float = 30.0  # from a request's first byte to its answer; below BentoML's

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Return the settings in `environment`; an empty variable counts as not set.

        Raises:
            UsageError: If SCDA_BUNDLE is not set, the key is blank, a number is not one or
                too small, or a flag is neither 0 nor 1.
        """
        bundle = environment.get("SCDA_BUNDLE")
        if not bundle:
            raise UsageError("SCDA_BUNDLE is not set; want the folder of a bundle or a run")
        return cls(
            bundle=Path(bundle),
            api_key=_key(environment),
            public_metrics=_flag(environment, "SCDA_PUBLIC_METRICS"),
            max_bytes=_count(environment, "SCDA_MAX_BYTES", cls.max_bytes),
            max_pixels=_count(environment, "SCDA_MAX_PIXELS", cls.max_pixels),
            max_files=_count(environment, "SCDA_MAX_FILES", cls.max_files),
            threads=_count(environment, "SCDA_THREADS", cls.threads, least=0),
            provider=environment.get("SCDA_PROVIDER") or cls.provider,
            queue=_count(environment, "SCDA_QUEUE", cls.queue),
            max_batch=_count(environment, "SCDA_MAX_BATCH", cls.max_batch, least=0),
            max_wait_ms=_count(environment, "SCDA_MAX_WAIT_MS", cls.max_wait_ms, least=0),
        )


def _key(environment: Mapping[str, str]) -> str:
    key = environment.get("SCDA_API_KEY", "")
    if key and not key.strip():
        raise UsageError("SCDA_API_KEY is blank; want a key, or the variable not set")
    return key.strip()  # a file of secrets ends in a newline, which no header can hold


def _flag(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name) or "0"
    if text not in ("0", "1"):
        raise UsageError(f"{name} is {text!r}; want 0 or 1")
    return text == "1"


def _count(environment: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    text = environment.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise UsageError(f"{name} is {text!r}; want a whole number, {least} or more")
    return int(text)
