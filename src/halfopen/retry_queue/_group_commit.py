"""
One writer thread that commits whatever waits, together.

While one batch is being synced to disk the next one gathers, so batches form by themselves under load, and a lone
operation is committed at once. After a batch of several the writer waits a moment, shorter than a sync, for as many
again. An operation is a function over an open transaction. It may be run again when the batch it was in had to be
rolled back, so it must not touch anything else; and it may raise a `QueueError` only before its first write.
"""

from __future__ import annotations

import copy
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar

from ._errors import QueueError, StoreUnavailableError

__all__ = ["GroupCommit", "Joint", "Parameters", "Ticket", "Transaction", "Writer"]

T = TypeVar("T")
Parameters = dict[str, Any] | Sequence[Any]
_GATHERING = 0.0003
_LOG = logging.getLogger("halfopen.retry_queue")


class Transaction(Protocol):
    """An open transaction, as operations see it."""

    now: float
    lease_now: float
    row_lock: str
    lane_lock: str

    def execute(self, sql: str, parameters: Parameters | None = None) -> int:
        """Run one statement; return the number of rows it changed."""
        ...

    def rows(self, sql: str, parameters: Parameters | None = None) -> list[tuple[Any, ...]]:
        """Run one statement; return its rows."""
        ...

    def notify(self, lane: str) -> None:
        """Wake other processes for *lane* after the commit."""


class Writer(Protocol):
    """The one connection that writes, used by the writer thread only."""

    def begin(self) -> Transaction:
        """Open a transaction that may write."""
        ...

    def commit(self) -> None:
        """Return when everything since `begin` is durable."""

    def rollback(self) -> None:
        """Undo everything since `begin`; never raises."""

    def close(self) -> None:
        """Close the connection; never raises."""


class Joint(ABC, Generic[T]):
    """An operation that costs less together with others of its class."""

    __slots__ = ()

    @staticmethod
    @abstractmethod
    def together(transaction: Transaction, operations: Sequence[Any]) -> list[Any]:
        """Run all, in this order; return what each returned, or the `QueueError` with which it was refused."""

    def __call__(self, transaction: Transaction) -> T:
        """Run it alone."""
        outcome = self.together(transaction, [self])[0]
        if isinstance(outcome, QueueError):
            raise outcome
        value: T = outcome
        return value


class Ticket(Generic[T]):
    """
    The result of an operation, once it is durable.

    Args:
        operation: What to do.
        callback: As for `then`.
    """

    __slots__ = ("_callbacks", "_done", "_error", "_gate", "_lock", "_value", "operation")

    def __init__(
        self, operation: Callable[[Transaction], T], callback: Callable[[Ticket[T]], object] | None = None
    ) -> None:
        self.operation = operation
        self._lock = threading.Lock()
        self._gate = threading.Lock()
        self._gate.acquire()
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks = [] if callback is None else [callback]

    def result(self, timeout: float | None = None) -> T:
        """
        Wait until it is durable and return what the operation returned.

        Raises:
            StoreUnavailableError: The commit failed; nothing happened.
            TimeoutError: Not durable within *timeout* seconds; it may still become so.
        """
        if not self._done:
            if not self._gate.acquire(timeout=-1 if timeout is None else timeout):
                raise TimeoutError("the store has not answered yet")
            self._gate.release()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set together with _done

    @property
    def error(self) -> BaseException | None:
        """Return the error it ended with, if any."""
        return self._error

    def then(self, callback: Callable[[Ticket[T]], object]) -> None:
        """Call *callback* with this ticket when it is done, on the writer thread; it must not block."""
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def settle(self, value: T | None, error: BaseException | None) -> None:
        """Set the outcome and wake whoever waits."""
        with self._lock:
            self._value, self._error, self._done = value, error, True
            callbacks = self._callbacks
        self._gate.release()
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                _LOG.exception("a callback of the retry queue raised")


class GroupCommit:
    """
    The writer thread and its waiting operations.

    Args:
        connect: Opens the writing connection, on the writer thread; tried again when it fails.
        translate: Turns a database error into the `StoreUnavailableError` to raise, or returns None for a mistake of
            the operation.
        batch: Most operations in one transaction.
    """

    def __init__(
        self,
        connect: Callable[[], Writer],
        translate: Callable[[Exception], StoreUnavailableError | None],
        *,
        name: str,
        batch: int = 2000,
    ) -> None:
        self._connect = connect
        self._translate = translate
        self._batch = batch
        self._waiting: deque[Ticket[Any]] = deque()
        # Entered by itself: an interrupt on the way into a Condition, which is Python code, would leave it held.
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._closing = False
        self._last = 0
        self._wanted = 1
        self._asleep = False
        self._writer: Writer | None = None
        self._thread = threading.Thread(target=self._run, name=f"halfopen-{name}", daemon=True)
        self._thread.start()

    def submit(
        self, operation: Callable[[Transaction], T], callback: Callable[[Ticket[T]], object] | None = None
    ) -> Ticket[T]:
        """Queue *operation* for the next transaction; never waits for the disk. *callback* as for `Ticket.then`."""
        ticket = Ticket(operation, callback)
        with self._lock:
            if self._closing:
                raise StoreUnavailableError("the store is closed")
            self._waiting.append(ticket)
            if self._asleep and len(self._waiting) >= self._wanted:
                self._asleep = False
                self._wake.notify()
        return ticket

    def close(self) -> None:
        """Commit what waits, then end the thread and close the connection."""
        with self._lock:
            self._closing = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while tickets := self._next_batch():
            self._last = len(tickets)
            try:
                self._run_batch(tickets)
            except BaseException as broken:
                self._fail(tickets, broken)
        if self._writer is not None:
            self._writer.close()

    def _next_batch(self) -> Sequence[Ticket[Any]]:
        with self._lock:
            self._gather()
            while not self._waiting and not self._closing:
                self._asleep = True
                self._wake.wait()
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), self._batch))]

    def _gather(self) -> None:
        """Let those who were just woken hand in their next operation, for less time than a sync takes."""
        if 1 < self._last > len(self._waiting) and not self._closing:
            self._wanted, self._asleep = self._last, True
            self._wake.wait(_GATHERING)
        self._wanted, self._asleep = 1, False

    def _run_batch(self, tickets: Sequence[Ticket[Any]]) -> None:
        try:
            outcomes = self._commit_together(tickets)
        except Exception as error:
            if (unavailable := self._translate(error)) is not None:
                self._fail(tickets, unavailable)
            elif len(tickets) == 1:
                self._fail(tickets, error)
            else:
                # One operation spoiled the transaction; alone, each gets what it deserves.
                for ticket in tickets:
                    self._run_batch([ticket])
            return
        for ticket, (value, refused) in zip(tickets, outcomes, strict=True):
            ticket.settle(value, refused)

    def _commit_together(self, tickets: Sequence[Ticket[Any]]) -> list[tuple[Any, QueueError | None]]:
        outcomes: list[tuple[Any, QueueError | None]] = []
        writer, transaction = self._begin()
        try:
            for kind, run in groupby(tickets, key=_kind):
                outcomes += _run_all(transaction, kind, [ticket.operation for ticket in run])
            writer.commit()
        except BaseException as error:
            writer.rollback()
            if isinstance(error, Exception) and self._translate(error) is not None:
                self._drop_writer()
            raise
        return outcomes

    def _begin(self) -> tuple[Writer, Transaction]:
        fresh = self._writer is None
        if self._writer is None:
            self._writer = self._connect()
        try:
            return self._writer, self._writer.begin()
        except Exception as error:
            self._drop_writer()
            if fresh or self._translate(error) is None:
                raise
        # The server was restarted since the last batch: nothing was begun yet, so a new connection is no risk.
        self._writer = self._connect()
        return self._writer, self._writer.begin()

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.rollback()
            self._writer.close()
        self._writer = None

    def _fail(self, tickets: Sequence[Ticket[Any]], error: BaseException) -> None:
        for ticket in tickets:
            # One error each: raising one object in many threads would pile up tracebacks.
            ticket.settle(None, copy.copy(error))


def _kind(ticket: Ticket[Any]) -> type:
    return type(ticket.operation)


def _run_all(
    transaction: Transaction, kind: type, operations: Sequence[Callable[[Transaction], Any]]
) -> list[tuple[Any, QueueError | None]]:
    if issubclass(kind, Joint):
        found = kind.together(transaction, operations)
        return [(None, one) if isinstance(one, QueueError) else (one, None) for one in found]
    return [_run_one(transaction, operation) for operation in operations]


def _run_one(transaction: Transaction, operation: Callable[[Transaction], Any]) -> tuple[Any, QueueError | None]:
    try:
        return operation(transaction), None
    except QueueError as refused:
        return None, refused
