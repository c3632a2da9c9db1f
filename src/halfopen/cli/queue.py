"""`halfopen queue`: look into a retry queue, and give its messages orders."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, cast, get_args

import click

from halfopen.retry_queue import (
    Message,
    MessageState,
    PayloadCorruptError,
    QueueError,
    RetryQueue,
    Selection,
    Store,
    StoreUnavailableError,
    UnknownMessageError,
)
from halfopen.retry_queue._orders import BulkCommand

__all__ = ["queue"]

_LAST = datetime.max.replace(tzinfo=UTC).timestamp() - 1
_SEQ = click.IntRange(0, 2**63 - 1)


class _Refused(click.ClickException):
    exit_code = 1

    def show(self, file: Any = None) -> None:
        click.echo(f"halfopen queue: {self.message}", err=True)


class _BadInput(_Refused):
    exit_code = 2


class _Seconds(click.types.FloatParamType):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return seconds


@click.group("queue")
@click.option("--db", envvar="HALFOPEN_QUEUE", required=True, help="A SQLite file, or what PostgreSQL connects to.")
@click.option("--schema", default="halfopen", show_default=True, help="PostgreSQL: where the tables are.")
@click.pass_context
def queue(context: click.Context, db: str, schema: str) -> None:
    """
    Look into a retry queue, and give its messages orders.

    Orders take Message-IDs, or a selection (--lane, --state, --reason …), whose count must be confirmed: at the
    prompt, or with --expect. Exit codes: 0 done, 1 refused, 2 bad input.
    """
    context.obj = (db, schema)


@contextmanager
def _opened(context: click.Context) -> Generator[RetryQueue]:
    db, schema = context.obj
    try:
        with RetryQueue(_store(db, schema)) as opened:
            yield opened
    except UnknownMessageError as error:
        raise _BadInput(str(error)) from error
    except StoreUnavailableError as error:
        raise _BadInput(str(error)) from error
    except (QueueError, PayloadCorruptError) as error:
        raise _Refused(str(error)) from error


def _store(db: str, schema: str) -> Store:
    if db.startswith(("postgres://", "postgresql://")) or "=" in db:
        from halfopen.retry_queue.postgres import PostgresStore

        return PostgresStore(db, schema=schema)
    from halfopen.retry_queue import SqliteStore

    if not Path(db).is_file():
        raise _BadInput(f"there is no queue at {db}")
    return SqliteStore(db)


def _selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which messages are meant, handed on as *selection*."""

    @click.option("--lane", help="Only this partner's.")
    @click.option("--state", "states", multiple=True, type=click.Choice([state.value for state in MessageState]))
    @click.option("--type", "kind", help="Only this document type.")
    @click.option("--stream", help="Only this ordered stream's.")
    @click.option("--older", type=_Seconds(), metavar="SECONDS", help="Only those enqueued longer ago.")
    @click.option("--reason", metavar="TEXT", help="Only those whose last detail contains this.")
    @wraps(command)
    def with_selection(
        lane: str | None,
        states: tuple[str, ...],
        kind: str | None,
        stream: str | None,
        older: float | None,
        reason: str | None,
        **rest: Any,
    ) -> Any:
        selection = Selection(
            lane=lane,
            states=frozenset(map(MessageState, states)),
            kind=kind,
            stream=stream,
            created_before=None if older is None else datetime.now(UTC).timestamp() - older,
            reason=reason,
        )
        return command(selection=selection, **rest)

    return with_selection


_json = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")


@queue.command("list")
@_selecting
@click.option("--limit", default=50, show_default=True, type=_SEQ, help="At most so many.")
@click.option("--after", default=0, type=_SEQ, metavar="SEQ", help="Go on after this one.")
@_json
@click.pass_context
def list_(context: click.Context, selection: Selection, limit: int, after: int, as_json: bool) -> None:
    """List messages, oldest first."""
    with _opened(context) as opened:
        _print_messages(opened.list(selection, after=after, limit=limit), as_json)


@queue.command()
@_selecting
@click.option("--limit", default=50, show_default=True, type=_SEQ, help="At most so many.")
@_json
@click.pass_context
def dead(context: click.Context, selection: Selection, limit: int, as_json: bool) -> None:
    """List what needs a person: dead letters and errors, with their reasons."""
    states = selection.states or frozenset({MessageState.DEAD, MessageState.ERROR})
    wanted = replace(selection, states=states)
    with _opened(context) as opened:
        _print_messages(opened.list(wanted, limit=limit), as_json)


@queue.command()
@click.argument("message_id")
@click.option("--body", is_flag=True, help="Write the stored bytes to standard output, nothing else.")
@_json
@click.pass_context
def show(context: click.Context, message_id: str, body: bool, as_json: bool) -> None:
    """Show one message, its headers and its history."""
    with _opened(context) as opened:
        if body:
            _copy(opened, message_id)
            return
        message = opened.get(message_id)
        history = [asdict(entry) for entry in opened.history(message_id)]
        headers = opened.headers(message_id)
    if as_json:
        _print_json({**_plain(message), "headers": headers, "history": history})
        return
    for name, value in _plain(message).items():
        if value is not None:
            click.echo(f"{name:<16} {_readable(name, value)}")
    for name, value in headers:
        click.echo(f"header           {name}: {value}")
    for entry in history:
        parts = (entry["what"], entry["outcome"], entry["detail"], entry["who"])
        click.echo(f"{_time(entry['at'])}  #{entry['attempt']} {' · '.join(part for part in parts if part)}")


def _copy(opened: RetryQueue, message_id: str) -> None:
    out = sys.stdout.buffer
    with opened.open(message_id) as stream:
        while part := stream.read(1 << 20):
            out.write(part)
    out.flush()


@queue.command()
@_json
@click.pass_context
def stats(context: click.Context, as_json: bool) -> None:
    """Count messages, in all and per lane."""
    with _opened(context) as opened:
        total, lanes = opened.stats(), opened.lanes()
    if as_json:
        shown = {"messages": total.messages, "oldest_message": total.oldest_message}
        _print_json({**shown, "lanes": [asdict(lane) for lane in lanes]})
        return
    click.echo("  ".join(f"{name} {number}" for name, number in total.messages.items()))
    for lane in lanes:
        counts = ", ".join(f"{state} {number}" for state, number in lane.messages.items()) or "nothing waits"
        hold = f"  held: {lane.hold}" if lane.hold else ""
        oldest = f"  oldest {_time(lane.oldest)}" if lane.oldest else ""
        circuit = f"  circuit {lane.breaker}" if lane.breaker else ""
        click.echo(f"{lane.lane}  {counts}{oldest}{circuit}{hold}")


def _ordering(order: str, words: str) -> None:
    """Make one command that gives *order*, to IDs or to a selection."""

    @queue.command(order, help=words)
    @click.argument("message_ids", nargs=-1)
    @_selecting
    @click.option("--deadline", type=_Seconds(), metavar="SECONDS", help="A new deadline, from now.")
    @click.option("--confirm", is_flag=True, help="resubmit: the partner may have it already, and that is all right.")
    @click.option("--expect", type=int, metavar="COUNT", help="Do it without asking if so many messages are meant.")
    @click.option("--why", default="", help="For the history.")
    @click.option("--by", default=None, help="Who orders it, for the history.")
    @_json
    @click.pass_context
    def give(context: click.Context, /, message_ids: tuple[str, ...], selection: Selection, **options: Any) -> None:
        with _opened(context) as opened:
            if message_ids:
                _give_one_by_one(opened, order, message_ids, options)
            else:
                _give_in_bulk(opened, order, selection, options)


_ordering("retry", "Try messages again now, under the same ID, with fresh tries.")
_ordering("resend", "Send again, under the same ID, what the partner may have already.")
_ordering("resubmit", "Send the content as a new message with a new ID.")
_ordering("cancel", "Take messages out of the queue.")


def _give_one_by_one(opened: RetryQueue, order: str, message_ids: Iterable[str], options: dict[str, Any]) -> None:
    results: list[dict[str, str]] = []
    try:
        for message_id in message_ids:
            result = _give(opened, order, message_id, options)
            results.append({"order": order, "message_id": message_id, "result": result})
    finally:
        _tell(order, results, as_json=options["as_json"])  # also what was done before one was refused


def _give(opened: RetryQueue, order: str, message_id: str, options: dict[str, Any]) -> str:
    common = {"reason": options["why"], "by": options["by"]}
    if order == "cancel":
        return opened.cancel(message_id, **common).id
    if order == "resubmit":
        sent = opened.resubmit(message_id, confirm=options["confirm"], deadline=options["deadline"], **common)
        return sent.message_id
    message: Message = getattr(opened, order)(message_id, deadline=options["deadline"], **common)
    return message.id


def _tell(order: str, results: list[dict[str, str]], *, as_json: bool) -> None:
    if as_json:
        _print_json(results)
        return
    for line in results:
        suffix = f" as {line['result']}" if order == "resubmit" else ""
        click.echo(f"{order}: {line['message_id']}{suffix}")


def _give_in_bulk(opened: RetryQueue, order: str, selection: Selection, options: dict[str, Any]) -> None:
    if selection == Selection():
        raise _BadInput(f"which messages? Give their IDs, or --lane, --state, --type, --older or --reason to {order}")
    assert order in get_args(BulkCommand)
    expected = options["expect"]
    if expected is None:
        expected = opened.count(selection)
        if not sys.stdin.isatty():
            raise _BadInput(f"{expected} messages are meant: repeat with --expect {expected}")
        click.confirm(f"{order} {expected} messages?", abort=True)
    done = opened.bulk(
        cast(BulkCommand, order),
        selection,
        expected=expected,
        deadline=options["deadline"],
        confirm=options["confirm"],
        reason=options["why"],
        by=options["by"],
    )
    if options["as_json"]:
        _print_json({"order": order, "meant": expected, "done": done})
        return
    click.echo(f"{order}: {done} of {expected} messages")
    if done < expected:
        raise _Refused(f"{expected - done} were in a state that does not allow it")


@queue.command()
@click.argument("lane")
@click.option("--for", "seconds", type=_Seconds(), metavar="SECONDS", help="End by itself after so long.")
@click.option("--why", default="")
@click.option("--by", default=None)
@_json
@click.pass_context
def hold(context: click.Context, lane: str, seconds: float | None, why: str, by: str | None, as_json: bool) -> None:
    """Keep a lane from sending."""
    with _opened(context) as opened:
        opened.hold(lane, until=seconds, note=why, by=by)
    _print_lane("held", lane, as_json=as_json)


@queue.command()
@click.argument("lane")
@click.option("--why", default="")
@click.option("--by", default=None)
@_json
@click.pass_context
def release(context: click.Context, lane: str, why: str, by: str | None, as_json: bool) -> None:
    """Let a held lane send again."""
    with _opened(context) as opened:
        opened.release(lane, note=why, by=by)
    _print_lane("released", lane, as_json=as_json)


# Printing


def _print_lane(result: str, lane: str, *, as_json: bool) -> None:
    if as_json:
        _print_json({"lane": lane, "result": result})
    else:
        click.echo(f"{result}: {lane}")


def _plain(message: Message) -> dict[str, Any]:
    return {**asdict(message), "state": message.state.value}


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def _print_messages(messages: Iterable[Message], as_json: bool) -> None:
    if as_json:
        _print_json([_plain(message) for message in messages])
        return
    for message in messages:
        doubt = " (the partner may have it)" if message.maybe_delivered else ""
        detail = f"  {message.last_detail}" if message.last_detail else ""
        click.echo(
            f"{message.seq}  {message.id}  {message.lane}  {message.state}{doubt}"
            f"  attempts {message.attempts}  {_time(message.created)}{detail}"
        )


def _readable(name: str, value: Any) -> str:
    return _time(value) if name in ("created", "deadline", "due", "finished") else str(value)


def _time(unix: float) -> str:
    if unix > _LAST:
        return "never"
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="seconds")
