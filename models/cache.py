"""The cache folder: files that can be computed again, such as features."""

from pathlib import Path

import platformdirs

from scda.models.errors import UsageError


def user_cache() -> Path:
    """Return the user's cache folder of scda, `~/.cache/scda` on Linux; it may not exist yet.

    Raises:
        UsageError: If the user has no home folder and `XDG_CACHE_HOME` is not set.
    """
    try:
        folder = platformdirs.user_cache_path("scda", appauthor=False)
    except RuntimeError:  # a user without an entry, as in some containers
        folder = Path("~")
    if not folder.is_absolute():  # what older versions of platformdirs return then
        raise UsageError(
            "no home folder for the cache; pass --cache DIR, or set XDG_CACHE_HOME to an absolute "
            "path"
        )
    return folder
