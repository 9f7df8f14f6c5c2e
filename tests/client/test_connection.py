"""What both clients take from the process around them."""

from __future__ import annotations

import ssl

import certifi
import pytest

from tarnlog._connection import endpoint


def test_clients_share_what_they_know_of_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all authorities takes tens of milliseconds; who names others by the environment is heard."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    first = endpoint("https://a.example", None).tls
    assert endpoint("https://b.example", "key").tls is first
    assert (first.verify_mode, first.check_hostname) == (ssl.CERT_REQUIRED, True)
    monkeypatch.setenv("SSL_CERT_FILE", certifi.where())
    assert endpoint("https://a.example", None).tls is not first
