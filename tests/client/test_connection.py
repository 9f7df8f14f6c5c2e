"""What both clients take from the process around them."""

from __future__ import annotations

import os
import shutil
import ssl
from pathlib import Path

import certifi
import httpx
import pytest

from tarnlog import Client
from tarnlog._connection import endpoint


def test_clients_share_what_they_know_of_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all authorities takes tens of milliseconds; who names others by the environment is heard."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    first = endpoint("https://a.example", None).tls()
    assert endpoint("https://b.example", "key").tls() is first
    assert (first.verify_mode, first.check_hostname) == (ssl.CERT_REQUIRED, True)
    monkeypatch.setenv("SSL_CERT_FILE", certifi.where())
    assert endpoint("https://a.example", None).tls() is not first


def test_a_file_of_certificates_that_was_replaced_is_read_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "authorities.pem"
    shutil.copy(certifi.where(), place)
    monkeypatch.setenv("SSL_CERT_FILE", str(place))
    first = endpoint("https://a.example", None).tls()
    assert endpoint("https://a.example", None).tls() is first
    os.utime(place, ns=(1, 1))
    assert endpoint("https://a.example", None).tls() is not first


def test_a_transport_of_ones_own_needs_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/there/is/none.pem")
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json={"tables": []}))
    with Client("https://a.example", transport=transport) as client:
        assert client.url
