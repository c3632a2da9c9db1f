from __future__ import annotations

from pathlib import Path

import pytest

from halfopen import ConfigError, Registry
from halfopen.gateway import gateway_from_file, read

GOOD = """
[gateway]
port = 9000
max_body = "500 MB"
idle_timeout = "1m"
queue = "queue.db"
token = "${TOKEN:-t}"

[breaker.acme]
consecutive_failures = 3

[timeout.acme]
seconds = 30

[pipeline.acme]
policies = ["breaker.acme", "timeout.acme"]

[partner.acme]
url = "https://acme.example/as2"
pipeline = "pipeline.acme"
as2 = true
store_and_forward = true
deadline = "4h"
headers = { Authorization = "Bearer x" }
profile = { limit = 2, duplicate_texts = ["document-exists"], schedule = { first = "1m" } }

[partner.other]
url = "http://127.0.0.1:8080"
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return tmp_path / "halfopen.toml"


def test_a_file_says_everything(written: Path) -> None:
    written.write_text(GOOD)

    found = read(written)

    assert (9000, 500_000_000, 60.0, "t") == (
        found.settings.port,
        found.settings.max_body,
        found.settings.idle_timeout,
        found.settings.token,
    )
    assert str(written.parent / "queue.db") == found.settings.queue
    acme = found.partners["acme"]
    assert (True, True, 14400.0) == (acme.as2, acme.store_and_forward, acme.deadline)
    assert (2, 60.0, frozenset({"document-exists"})) == (
        acme.profile.limit,
        acme.profile.schedule.first,
        acme.profile.duplicate_texts,
    )
    assert ["acme", "other"] == list(found.partners)


def test_a_registry_reads_the_same_file(written: Path) -> None:
    written.write_text(GOOD)

    assert "acme" in Registry.from_file(written)


def test_a_partner_uses_the_policies_of_the_file(written: Path) -> None:
    written.write_text(GOOD)

    gateway = gateway_from_file(written)

    breaker = gateway.partners["acme"].breaker
    assert gateway.registry["breaker.acme"] is breaker
    assert "other" == gateway.partners["other"].breaker.name  # type: ignore[union-attr]
    gateway.queue.close()  # type: ignore[union-attr]


def test_every_mistake_is_told_at_once_with_its_line(written: Path) -> None:
    written.write_text(
        """
[gateway]
prot = 1
host = "0.0.0.0"
max_body = "much"

[breaker.a]
consecutive_failures = -1

[partner.a]
url = "ftp://a.example"
store_and_forward = true

[partner.b]
pipeline = "pipeline.none"

[partner.c]
url = "https://u:p@c.example/"

[partners.d]
url = "https://d.example/"
"""
    )

    with pytest.raises(ConfigError) as caught:
        read(written)

    told = {(mistake.path, mistake.line) for mistake in caught.value.mistakes}
    assert {
        ("gateway.prot", 3),
        ("gateway.token", 2),
        ("gateway.max_body", 5),
        ("breaker.a.consecutive_failures", 8),
        ("partner.a.url", 11),
        ("partner.b.url", 14),
        ("partner.c.url", 18),
        ("partners", 20),
    } == told


@pytest.mark.parametrize(
    ("lines", "path"),
    [
        ("", "partner"),
        ('[partner.a]\nurl = "https://a.example"\npipeline = "pipeline.b"', "partner.a.pipeline"),
        ('[partner.a]\nurl = "https://a.example"\nbreaker = "a"', "partner.a.breaker"),
        ('[partner.a]\nurl = "https://a.example"\nstore_and_forward = true', "partner.a.store_and_forward"),
        ('[partner.a]\nurl = "https://a.example"\ntimeout = 0', "partner.a.timeout"),
        ('[partner.a]\nurl = "https://a.example"\nheaders = { "X Y" = "1" }', "partner.a.headers"),
        ('[partner.a]\nurl = "https://a.example"\nprofile = { limit = 0 }', "partner.a.profile.limit"),
        ('[partner."a/b"]\nurl = "https://a.example"', "partner.a/b.name"),
        ('[gateway]\ncertificate = "x.pem"\n[partner.a]\nurl = "https://a.example"', "gateway.certificate"),
    ],
)
def test_what_cannot_be_is_refused(written: Path, lines: str, path: str) -> None:
    written.write_text(lines)

    with pytest.raises(ConfigError) as caught:
        read(written)

    assert [path] == [mistake.path for mistake in caught.value.mistakes]


def test_a_pipeline_that_would_send_twice_or_make_answers_up_is_refused(written: Path) -> None:
    written.write_text(
        """
[hedge.a]
delay = 1

[fallback.a]
on = "ConnectionError"
value = "sorry"

[pipeline.a]
policies = ["fallback.a", "hedge.a"]

[partner.a]
url = "https://a.example"
pipeline = "pipeline.a"
"""
    )

    with pytest.raises(ConfigError) as caught:
        gateway_from_file(written)

    assert 2 == len(caught.value.mistakes)
