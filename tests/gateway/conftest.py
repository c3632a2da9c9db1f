from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from halfopen import Registry
from halfopen.gateway import Gateway, GatewaySettings, PartnerSettings
from tests.gateway.support import Partner, gateway_serving, partner_serving

Serving = Callable[..., int]


@pytest.fixture
def partner() -> Iterator[Partner]:
    with partner_serving() as serving:
        yield serving


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def serving(partner: Partner, registry: Registry, tmp_path: Path) -> Iterator[Serving]:
    """Run a gateway with one partner, ``acme``; settings of the gateway stand in a table, the others are acme's."""
    with ExitStack() as stack:

        def start(*, gateway: dict[str, Any] | None = None, queue: bool = False, **settings: Any) -> int:
            more = {"queue": str(tmp_path / "queue.db")} if queue else {}
            made = Gateway(
                GatewaySettings(**{"port": 0, "drain": 5.0, **more, **(gateway or {})}),
                {"acme": PartnerSettings(**{"name": "acme", "url": partner.url + "/base", **settings})},
                registry,
            )
            return stack.enter_context(gateway_serving(made))

        yield start
