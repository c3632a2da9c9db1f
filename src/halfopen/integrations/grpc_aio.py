"""Guard `grpc.aio`: ``grpc.aio.insecure_channel(target, interceptors=guard_interceptors(target))``."""

# pyright: basic
# (grpcio ships no types)

from __future__ import annotations

from typing import Any, ClassVar, Literal

import grpc
import grpc.aio

from halfopen.errors import CallTimeoutError, RejectedError
from halfopen.integrations._grpc import GrpcEvidence, dialect_of, key_of, timeout_of
from halfopen.integrations._guard import Guard
from halfopen.integrations._settling import Settling, Stay

__all__ = ["DIALECT", "EVIDENCE", "guard_interceptors"]

DIALECT = dialect_of(__name__, grpc.aio.AioRpcError)
EVIDENCE = GrpcEvidence()


def guard_interceptors(target: str, *, guard: Any = None) -> list[Any]:
    """
    Return the interceptors, one for each kind of call, that send calls through the policies of their target.

    They do what `halfopen.integrations.grpc.GuardInterceptor` does; refusals are a `grpc.aio.AioRpcError`, too.

    Args:
        target: What the channel is made for.
        guard: As there. What is used is the attribute `guard` of each.
    """
    kinds = (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream)
    first = kinds[0](target, guard)
    return [first, *(kind(target, first.guard) for kind in kinds[1:])]


class _Leading:
    _stays: ClassVar[Literal["acquire", "hold"]] = "acquire"

    def __init__(self, target: str, guard: Any) -> None:
        self._key = key_of(target)
        self._guard = Guard(guard, EVIDENCE, self._hold, self._discard, self._stays)
        self.guard = self._guard.policies

    @staticmethod
    def _hold(details: Any, call: Any, settling: Settling | Stay) -> None:
        settling.ended()

    @staticmethod
    async def _discard(call: Any) -> None:
        call.cancel()

    async def _lead(self, continuation: Any, details: Any, sent: Any) -> Any:
        async def send(details: Any) -> Any:
            return await self._begun(await continuation(details._replace(timeout=timeout_of(details)), sent))

        try:
            return await self._guard.acall(self._key, send, details)
        except (RejectedError, CallTimeoutError) as error:
            raise DIALECT.of(error) from None

    async def _begun(self, call: Any) -> Any:
        await call  # raises what the policies have to see; the caller awaits the same answer again
        return call


class _Streaming(_Leading):
    """For calls that only their user can end: who writes the requests one by one waits for the interceptor first."""

    _stays = "hold"

    async def _begun(self, call: Any) -> Any:
        return call

    @staticmethod
    def _hold(details: Any, call: Any, settling: Settling | Stay) -> None:
        def ended(call: Any) -> None:
            code = _now(call.code())
            if code is grpc.StatusCode.OK:
                settling.ended()
            else:
                trailing, details = _now(call.trailing_metadata()), _now(call.details())
                settling.raised(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details))

        call.add_done_callback(ended)


def _now(coroutine: Any) -> Any:
    """Return the result of a coroutine that has nothing to wait for: a call that is done knows its status."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    return None


class _UnaryUnary(_Leading, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # grpcio ships no types
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._lead(continuation, client_call_details, request)


class _UnaryStream(_Streaming, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc]  # grpcio ships no types
    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._lead(continuation, client_call_details, request)


class _StreamUnary(_Streaming, grpc.aio.StreamUnaryClientInterceptor):  # type: ignore[misc]  # grpcio ships no types
    async def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await self._lead(continuation, client_call_details, request_iterator)


class _StreamStream(_Streaming, grpc.aio.StreamStreamClientInterceptor):  # type: ignore[misc]  # grpcio ships no types
    async def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await self._lead(continuation, client_call_details, request_iterator)
