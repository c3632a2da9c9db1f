"""Guard gRPC: ``grpc.intercept_channel(channel, GuardInterceptor("example.com:443"))``; see also `grpc_aio`."""

# pyright: basic
# (grpcio ships no types)

from __future__ import annotations

from collections import namedtuple
from typing import Any
from weakref import ref

import grpc

from halfopen.errors import CallTimeoutError, RejectedError
from halfopen.integrations._grpc import GrpcEvidence, dialect_of, key_of, timeout_of
from halfopen.integrations._guard import Guard
from halfopen.integrations._settling import Settling, Stay

__all__ = ["DIALECT", "EVIDENCE", "GuardInterceptor"]

DIALECT = dialect_of(__name__, grpc.RpcError)
EVIDENCE = GrpcEvidence()
_FIELDS = ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")


class _Details(namedtuple("_Details", _FIELDS), grpc.ClientCallDetails):  # type: ignore[misc]  # grpcio ships no types
    pass


class GuardInterceptor(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]  # grpcio ships no types
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """
    Send each call through a circuit breaker, or any policies, of its target (``grpc://example.com:443``).

    A stream of answers is part of the call: its last status decides, and one that is cancelled is ignored. A refusal is
    a `grpc.RpcError` with UNAVAILABLE, too. Timeouts are cut to the ambient deadline.

    Args:
        target: What the channel was made for; gRPC does not tell its interceptors.
        guard: A family of breakers (`Registry.keyed`), a breaker, any policy, several of them, outermost first, or a
            function from the key to one of these; default a family of its own. What is used is the attribute `guard`.
    """

    def __init__(self, target: str, *, guard: Any = None) -> None:
        self._key = key_of(target)
        self._unary = Guard(guard, EVIDENCE, _hold_unary, lambda call: None, "acquire")
        self.guard = self._unary.policies
        self._stream = Guard(self.guard, EVIDENCE, _hold_stream, lambda call: call.cancel(), "hold")

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        """Guard one request with one answer."""
        return self._lead(self._unary, lambda details: _raising(continuation(details, request)), details)

    def intercept_stream_unary(self, continuation: Any, details: Any, requests: Any) -> Any:
        """Guard a stream of requests with one answer."""
        return self._lead(self._unary, lambda details: _raising(continuation(details, requests)), details)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        """Guard one request with a stream of answers."""
        return self._lead(self._stream, lambda details: continuation(details, request), details)

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        """Guard a stream of requests with a stream of answers."""
        return self._lead(self._stream, lambda details: continuation(details, requests), details)

    def _lead(self, guard: Guard, send: Any, details: Any) -> Any:
        try:
            return guard.call(self._key, lambda given: send(_shortened(given)), details)
        except (RejectedError, CallTimeoutError) as error:
            raise DIALECT.of(error) from None


def _shortened(details: Any) -> _Details:
    given = {name: getattr(details, name, None) for name in _FIELDS}
    return _Details(**{**given, "timeout": timeout_of(details)})


def _raising(call: Any) -> Any:
    """Return a call that is under way or was answered; raise the error of one that failed, for the policies to see."""
    if call.done() and not call.cancelled():
        error = call.exception()
        if error is not None:
            raise error
    return call


def _hold_unary(details: Any, call: Any, settling: Settling | Stay) -> None:
    def done(call: Any) -> None:
        error = None if call.cancelled() else call.exception()
        if call.cancelled():
            settling.closed()
        elif error is not None:
            settling.raised(error)
        else:
            settling.ended()

    call.add_done_callback(done)


def _hold_stream(details: Any, call: Any, settling: Settling | Stay) -> None:
    # Weak: the channel's thread keeps the callback, and a stream that its user forgot has to be cancelled as ever.
    known = ref(call)

    def ended() -> None:
        alive = known()
        if alive is None:
            settling.closed()
        elif alive.code() is grpc.StatusCode.OK:
            settling.ended()
        else:
            settling.raised(alive)  # the call is its error

    if not call.add_callback(ended):
        ended()
