from __future__ import annotations

import http.client
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from halfopen import Registry
from tests.faulty import running
from tests.gateway.support import Partner, ask, until


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    for name, days in (("good", "2"), ("client", "2")):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-days", days, "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")],
            check=True, capture_output=True,
        )  # fmt: skip
    return folder


@contextmanager
def tls_partner(certificates: Path, *, client: bool = False) -> Iterator[Partner]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "good.pem", certificates / "good.key")
    if client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates / "client.pem")
    partner = Partner()
    partner.socket = context.wrap_socket(partner.socket, server_side=True, do_handshake_on_connect=False)
    with running(partner):
        yield partner


def test_a_partner_behind_a_known_authority_is_reached(serving: Any, certificates: Path) -> None:
    with tls_partner(certificates) as partner:
        port = serving(url=f"https://127.0.0.1:{partner.server_port}", ca=str(certificates / "good.pem"))

        assert 200 == ask(port, "/to/acme/x", b"x").status


def test_an_unknown_authority_is_nobodys_illness(serving: Any, registry: Registry, certificates: Path) -> None:
    with tls_partner(certificates) as partner:
        got = ask(serving(url=f"https://127.0.0.1:{partner.server_port}"), "/to/acme/x", b"x")

    assert (502, "bad-certificate", "none") == (got.status, got.kind, got.json["delivery"])
    counted = registry.circuit_breaker("acme").snapshot().counters
    assert (0, 1) == (counted.failures, counted.ignored)


def test_a_stored_message_waits_while_the_certificate_is_wrong(
    serving: Any, registry: Registry, certificates: Path
) -> None:
    with tls_partner(certificates) as partner:
        breaker = registry.circuit_breaker("acme", consecutive_failures=1)
        breaker.trip(wait=60)
        port = serving(url=f"https://127.0.0.1:{partner.server_port}", queue=True, store_and_forward=True)
        got = ask(port, "/to/acme/x", b"x")
        breaker.reset()

        def shown() -> Any:
            return ask(port, got.headers["location"], method="GET").json

        assert until(lambda: shown()["last_outcome"] == "ignored")
        assert "waiting" == shown()["state"]


def test_a_client_certificate_is_shown(serving: Any, certificates: Path) -> None:
    mine = {"certificate": str(certificates / "client.pem"), "key": str(certificates / "client.key")}
    with tls_partner(certificates, client=True) as partner:
        url, ca = f"https://127.0.0.1:{partner.server_port}", str(certificates / "good.pem")

        assert 200 == ask(serving(url=url, ca=ca, **mine), "/to/acme/x", b"x").status


def test_the_gateway_itself_speaks_tls(serving: Any, certificates: Path) -> None:
    files = {"certificate": str(certificates / "good.pem"), "key": str(certificates / "good.key")}
    port = serving(gateway={**files, "token": "t"})
    context = ssl.create_default_context(cafile=str(certificates / "good.pem"))
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)

    connection.request("POST", "/to/acme/x", b"x", {"Halfopen-Token": "t"})

    assert 200 == connection.getresponse().status
    connection.close()
