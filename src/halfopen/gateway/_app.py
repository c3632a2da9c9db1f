"""The gateway as an ASGI application: who may ask, what goes where, what runs from start to end."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from halfopen._runtime.addresses import is_loopback
from halfopen.instrumentation.metrics import metrics_of
from halfopen.instrumentation.prometheus import asgi_app
from halfopen.registry import Registry
from halfopen.retry_queue import RetryQueue, Store

from ._api import api
from ._forwarding import PREFIX, Forwarding
from ._headers import value_of
from ._partner import Partner
from ._problems import Problem, Send, problem
from ._settings import GatewaySettings, PartnerSettings
from ._storing import Storing
from ._traffic import Traffic

__all__ = ["Gateway"]

_log = logging.getLogger("halfopen.gateway")
_PATIENCE = 30.0
_NO_TOKEN = Problem(
    401,
    "no-token",
    "show the gateway's token in the header Halfopen-Token",
    headers=((b"www-authenticate", b"Halfopen-Token"),),
)


class Gateway:
    """
    The ASGI application of a gateway, for `halfopen.gateway.serve`; it needs that server's connections.

    Args:
        settings: How it listens; the size and time limits count here as well.
        partners: Who can be reached.
        registry: Where the policies are that partners name; default a new one.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        partners: Mapping[str, PartnerSettings],
        registry: Registry | None = None,
    ) -> None:
        self.settings = settings
        self.registry = Registry() if registry is None else registry
        self.metrics = metrics_of(self.registry)  # first, so that the partners' breakers count from their first call
        self.traffic = Traffic()
        self.partners: Mapping[str, Partner] = {
            name: Partner(each, settings, self.registry) for name, each in partners.items()
        }
        self.queue = _opened(settings)
        self._storing = None if self.queue is None else Storing(self.queue)
        self._forward = Forwarding(settings, self.partners, self._storing, self.traffic)
        self._exposition = asgi_app(self.metrics)
        self._expose()
        self._api = api(lambda: self.partners, self.queue)
        self._guard()
        self._sending: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._retiring: dict[Partner, asyncio.Task[None]] = {}

    def _expose(self) -> None:
        self._unexpose = [self.metrics.add_gateway(self.traffic)]
        if self.queue is not None:
            self._unexpose.append(self.metrics.add_queue(self.queue))

    def _guard(self) -> None:
        self._token = self.settings.token.encode()
        self._open_to = None if self.settings.token else _names_of(self.settings)

    def change(self, settings: GatewaySettings, partners: Mapping[str, PartnerSettings]) -> None:
        """
        Let other limits and other partners count from now on; exchanges in flight come to their end.

        Callable from any thread. Where it listens, its own certificate, its queue, *keep_alive* and *drain* stay.

        Raises:
            ConfigError: A partner's pipeline does not fit; nothing has changed.
        """
        made = self._made(settings, partners)
        if self._loop is None:
            self._put(settings, made)
            return
        if _running_loop() is self._loop:
            self._replace(settings, made)
            return
        done: Future[None] = Future()
        self._loop.call_soon_threadsafe(_resolve, done, self._replace, settings, made)
        done.result(_PATIENCE)

    def _made(self, settings: GatewaySettings, partners: Mapping[str, PartnerSettings]) -> dict[str, Partner]:
        same_limits = settings.time_limit == self.settings.time_limit
        made: dict[str, Partner] = {}
        for name, each in partners.items():
            old = self.partners.get(name)
            kept = old is not None and same_limits and old.settings == each
            made[name] = old if old is not None and kept else Partner(each, settings, self.registry)
        return made

    def _put(self, settings: GatewaySettings, partners: Mapping[str, Partner]) -> None:
        self.settings, self.partners = settings, partners
        self._forward.know(settings, partners)
        self._guard()

    def _replace(self, settings: GatewaySettings, partners: Mapping[str, Partner]) -> None:
        before = self.partners
        for name, partner in partners.items():
            if before.get(name) is not partner:
                partner.upstream.open()
        self._put(settings, partners)
        for name in before.keys() | partners.keys():
            self._exchange(before.get(name), partners.get(name))

    def _exchange(self, old: Partner | None, new: Partner | None) -> None:
        if old is new:
            return
        if self._storing is not None:
            if old is None and new is not None:
                self._storing.add(new)
            elif old is not None and new is not None:
                self._storing.change(old, new)
            elif old is not None:
                self._storing.remove(old)
        if old is not None:
            task = asyncio.ensure_future(old.retire())
            self._retiring[old] = task
            task.add_done_callback(lambda _: self._retiring.pop(old, None))

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        refused = self._refusal(scope["headers"])
        if refused is not None:
            self.traffic.turn_away(refused.kind)
            await refused.send(send)
        elif scope["raw_path"].startswith(PREFIX):
            await self._forward(scope, receive, send)
        elif scope["raw_path"] == b"/metrics":
            await self._exposition(scope, receive, send)
        else:
            await self._api(scope, receive, send)

    def _refusal(self, headers: Any) -> Problem | None:
        if self._open_to is None:
            shown = value_of(headers, b"halfopen-token") or b""
            return None if hmac.compare_digest(shown, self._token) else _NO_TOKEN
        # Without a token any page in a browser on this machine could post here; but it cannot hide that it is one.
        given = value_of(headers, b"host")
        if given is not None:  # a program may speak HTTP/1.0; no browser does
            host = given.rpartition(b":")
            name = host[0] if host[1] and host[2].isdigit() else b"".join(host)
            if name.lower() not in self._open_to:
                return problem(421, "wrong-host", "the header Host names another machine than this one")
        site = value_of(headers, b"sec-fetch-site")
        if value_of(headers, b"origin") is not None or site not in (None, b"none", b"same-origin"):
            return problem(403, "browser", "a page in a browser may not use a gateway without a token")
        return None

    async def _live(self, receive: Any, send: Send) -> None:
        await receive()
        try:
            self._start()
        except Exception as error:
            _log.exception("the gateway could not start")
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._stop()
        await send({"type": "lifespan.shutdown.complete"})

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        for partner in self.partners.values():
            partner.upstream.open()
        if self.queue is None or self._storing is None:
            return
        for partner in self.partners.values():
            self._storing.add(partner)
        self._sending = asyncio.create_task(self.queue.arun(grace=self.settings.drain), name="halfopen-queue")

    async def _stop(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending
        self._loop = None
        retiring = dict(self._retiring)
        for task in retiring.values():
            task.cancel()
        for partner in [*self.partners.values(), *retiring]:
            await partner.upstream.close()
        if self._storing is not None:
            self._storing.close()
        for end in self._unexpose:
            end()
        if self.queue is not None:
            await asyncio.to_thread(self.queue.close)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _resolve(done: Future[None], change: Callable[..., None], *arguments: Any) -> None:
    try:
        change(*arguments)
    except BaseException as error:
        done.set_exception(error)
    else:
        done.set_result(None)


def _opened(settings: GatewaySettings) -> RetryQueue | None:
    where = settings.queue
    if not where:
        return None
    store: Store | str = where
    if where.startswith(("postgres://", "postgresql://")) or "=" in where:
        from halfopen.retry_queue.postgres import PostgresStore

        store = PostgresStore(where)
    return RetryQueue(store, name="gateway", max_size=settings.max_body)


def _names_of(settings: GatewaySettings) -> frozenset[bytes]:
    names = {b"localhost", b"127.0.0.1", b"[::1]"}
    if is_loopback(settings.host):
        names.add(settings.host.lower().encode())
    return frozenset(names)
