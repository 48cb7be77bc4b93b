"""Where a service listens: a socket that is bound before the model is loaded."""

from __future__ import annotations

import ipaddress
import socket

from certmask.errors import UsageError, first_line


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bound(host: str, port: int) -> socket.socket:
    """A socket that nobody can connect to before the service is ready; an error if the address is not free."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(f"expected a free address, got {host} port {port} ({first_line(error)})") from None
    return found


def reached(found: socket.socket) -> str:
    """Where a socket is reached."""
    host, port = found.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
