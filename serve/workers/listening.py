"""The listening socket of the server, its address, and how many connections a system allows."""

import ipaddress
import socket

from scda.models.errors import UsageError

BACKLOG = 2048  # connections that wait for a worker
_OTHER_FILES = 192  # of a worker: connections that are told no, the model, decoding processes ...


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: IP address, or `localhost`.
        port: Port; 0 chooses a free one.

    Raises:
        UsageError: If the server cannot listen there.
    """
    if not 0 <= port <= 65535:
        raise UsageError(f"port {port}: expected a number from 0 to 65535")
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        return socket.create_server((str(address), port), family=family, backlog=BACKLOG)
    except ValueError:
        raise UsageError(f"host {host!r}: expected an IP address or localhost") from None
    except OSError as error:  # the port is taken or forbidden, or the address is not this machine's
        raise UsageError(
            f"cannot listen on {_joined(host, port)}: {error}; choose another --host or --port"
        ) from None


def url_of(listener: socket.socket) -> str:
    """Return an address under which this machine reaches the socket."""
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.is_unspecified:
        host = "::1" if address.version == 6 else "127.0.0.1"
    return f"http://{_joined(host, port)}"


def is_local(listener: socket.socket) -> bool:
    """Return whether only this machine reaches the socket."""
    host = listener.getsockname()[0]
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


def allowed_connections(wanted: int) -> int:
    """Let this process and its workers open so many connections; return how many they may.

    Each needs an open file, and what a system allows at first is often 1,024.
    """
    import resource  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    files = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, files - _OTHER_FILES)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
