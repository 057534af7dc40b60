import sys
from pathlib import Path

import platformdirs
import pytest

from scda.models.cache import user_cache
from scda.models.errors import UsageError


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other places")
def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert user_cache() == Path("/home/ada/.cache/scda")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert user_cache() == Path("/scratch/scda")


def test_a_user_without_a_home_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(*names: str, appauthor: bool) -> Path:
        raise RuntimeError("Could not determine home directory.")

    message = "no home folder for the cache; pass --cache DIR, or set XDG_CACHE_HOME"
    monkeypatch.setattr(platformdirs, "user_cache_path", no_home)
    with pytest.raises(UsageError, match=message):
        user_cache()
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *names, appauthor: Path("~/.cache"))
    with pytest.raises(UsageError, match=message):
        user_cache()
