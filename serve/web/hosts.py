"""The check of the Host header, which protects a server without a key from web pages.

A page of evil.example whose name resolves to this machine (DNS rebinding) is to a browser the same
site as the server. Its requests still name evil.example as the host. A page cannot do that with an
IP address, because then it would have come from there.
"""

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

ANY = "*"


def is_allowed(host: str, names: Collection[str] = ()) -> bool:
    """Return whether a Host header names an IP address, localhost, or one of these names.

    Args:
        host: The value of the header, with or without a port.
        names: Further names in lower case; `*` allows every host.
    """
    if ANY in names:
        return True
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    if parts.netloc != host or parts.username is not None:
        return False
    return name == "localhost" or name in names or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
