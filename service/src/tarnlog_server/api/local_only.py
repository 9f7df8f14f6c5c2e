"""Which requests a service without keys answers: those of programs on this machine, not those of web pages.

A browser lets any page send requests to loopback. A page whose name is made to resolve to 127.0.0.1 (DNS rebinding) may
read the answers too. Such requests give themselves away: by a `Host` that is not this machine's, by the `Origin` of
another site, or by `Sec-Fetch-Site: cross-site`. A program that is not a browser sends none of these.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

from tarnlog.protocol.problems import ProblemError

_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(?::(?P<port>[0-9]{1,5}))?\Z", re.ASCII)
_DEFAULT_PORTS = {"http": "80", "https": "443"}
REMEDY = (
    "Without keys the service answers only programs and pages of this machine: use http://127.0.0.1 or localhost, add "
    "the name to TARNLOG_ALLOWED_HOSTS, or set TARNLOG_API_KEYS"
)


class LocalOnly:
    """Refuses requests that a foreign web page made. `hosts` are names that are this machine's besides loopback."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._hosts = frozenset(_name(host) for host in hosts)
        self._is_ours = lru_cache(maxsize=256)(self._decide)

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """ProblemError `host-not-allowed` for a request that does not come from this machine."""
        hosts: list[bytes] = []
        origin = site = None
        for name, value in headers:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
        # HTTP/1.0 needs no Host; a browser always sends one.
        if len(hosts) > 1 or (hosts and not self._is_ours(hosts[0])):
            raise _refusal(f"the Host header names {_shown(hosts[-1])}, which is not this machine")
        if origin is not None and not self._same(origin, hosts[0] if hosts else b""):
            raise _refusal(f"the request comes from a page of {_shown(origin)}")
        if site is not None and site.strip().lower() == b"cross-site":
            raise _refusal("the request comes from a page of another site")

    def _decide(self, host: bytes) -> bool:
        match = _AUTHORITY.match(host.decode("latin-1"))
        return match is not None and self._named(match["host"])

    def _named(self, host: str) -> bool:
        name = _name(host)
        if name == "localhost" or name in self._hosts:
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False

    def _same(self, origin: bytes, host: bytes) -> bool:
        """Whether a page's origin is the service itself, or one that is allowed by name."""
        try:
            page = urlsplit(origin.decode("ascii").strip().lower())
            name, port = page.hostname, page.port
        except ValueError:
            return False
        if page.scheme not in _DEFAULT_PORTS or not name:
            return False
        if _name(name) in self._hosts:
            return True
        match = _AUTHORITY.match(host.decode("latin-1").lower())
        default = _DEFAULT_PORTS[page.scheme]
        return match is not None and (_name(name), str(port or default)) == (
            _name(match["host"]),
            match["port"] or default,
        )


def _name(host: str) -> str:
    return host.strip().strip("[]").rstrip(".").lower()


def _shown(value: bytes) -> str:
    return repr(value[:100].decode("latin-1"))


def _refusal(reason: str) -> ProblemError:
    return ProblemError("host-not-allowed", f"{reason}. {REMEDY}")
