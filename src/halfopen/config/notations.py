"""Settings with a notation of their own: windows, waits, delays, algorithms, links, and names of other policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from halfopen._core.backoff import Exponential
from halfopen._core.retry_backoff import exponential as delays
from halfopen._core.windows import CountWindow, TimeWindow
from halfopen.adaptive_concurrency import Aimd, Gradient2
from halfopen.config.forms import (
    WRONG,
    Form,
    Reader,
    anything,
    duration,
    number,
    one_of,
    share,
    table,
    text,
    whole,
)  # fmt: skip
from halfopen.config.items import Item
from halfopen.config.names import called
from halfopen.config.values import FromEnvironment, parse_duration
from halfopen.errors import ConfigError
from halfopen.hedge import Quantile

__all__ = [
    "REFERENCES", "Reference", "algorithm", "backoff", "delay", "links", "reference", "references", "wait", "window",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reference:
    """A setting that names another policy of the file, and where it does."""

    section: str
    name: str
    item: Item


WINDOW = 'a number of calls such as 100, a duration such as "60s", or a table such as { seconds = 60, buckets = 10 }'
_WAIT = '{ first = "30s", factor = 2, cap = "10m", jitter = "10%" }'


def window(reader: Reader, item: Item) -> Any:
    """Read a window: a bare number counts calls, a text with a unit is time."""
    if item.is_table:
        fields = {"size": whole} if "size" in item.value else {"seconds": duration, "buckets": whole}
        return table(CountWindow if "size" in item.value else TimeWindow, fields, "{ size = 100 }")(reader, item)
    value = whole(reader, item)
    seconds = parse_duration(value) if isinstance(value, str) else None
    if (isinstance(value, str) and seconds is None) or isinstance(value, (bool, float, list, type(None))):
        reader.findings.wrong(item, WINDOW)
        return WRONG
    try:
        size: Any = value
        return CountWindow(size) if seconds is None else TimeWindow(seconds)
    except ConfigError as error:
        for mistake in error.mistakes:
            reader.findings.wrong(item, mistake.allowed, mistake.kind)
        return WRONG


_wait_table = table(Exponential, {"first": duration, "factor": number, "cap": duration, "jitter": share}, _WAIT)


def wait(reader: Reader, item: Item) -> Any:
    """Read a wait in OPEN: a duration, a table of an exponential series, or the name of a callable."""
    if item.is_table:
        return _wait_table(reader, item)
    return called(reader, item) if _is_name(reader, item) else duration(reader, item)


def _is_name(reader: Reader, item: Item) -> bool:
    value = item.value
    return isinstance(value, str) and not isinstance(value, FromEnvironment) and (":" in value or value in reader.names)


def _jitter(reader: Reader, item: Item) -> Any:
    value = item.value
    if isinstance(value, str) and not value.strip().endswith("%") and not isinstance(value, FromEnvironment):
        return one_of(none="none", full="full", equal="equal", decorrelated="decorrelated")(reader, item)
    return share(reader, item)


def _series(first: float = 0.1, factor: float = 2.0, cap: float = 10.0, jitter: Any = "full") -> Any:
    return delays(first, factor, cap, jitter) if isinstance(jitter, str) else Exponential(first, factor, cap, jitter)


_backoff_table = table(
    _series,
    {"first": duration, "factor": number, "cap": duration, "jitter": _jitter},
    '{ first = "100ms", factor = 2, cap = "10s", jitter = "full" }',
)


def backoff(reader: Reader, item: Item) -> Any:
    """Read the delays of a retry: a duration, a table of a series, or the name of a callable."""
    if item.is_table:
        return _backoff_table(reader, item)
    return called(reader, item) if _is_name(reader, item) else duration(reader, item)


_quantile = table(
    Quantile, {"share": share, "window": whole, "minimum": whole, "at_least": duration}, '{ share = "95%" }'
)


def delay(reader: Reader, item: Item) -> Any:
    """Read the delay of a hedge: a duration, or a table of a quantile."""
    return (_quantile if item.is_table else duration)(reader, item)


_ALGORITHMS: dict[str, tuple[Any, dict[str, Form]]] = {
    "gradient2": (
        Gradient2,
        {"tolerance": number, "queue_size": whole, "smoothing": share, "long_window": whole, "backoff": share},
    ),
    "aimd": (Aimd, {"slow_after": duration, "increase": number, "backoff": share}),
}


def algorithm(reader: Reader, item: Item) -> Any:
    """Read an algorithm of adaptive concurrency: its name, or a table with its kind and settings."""
    rest = {key: below for key, below in item.table.items() if key != "kind"} if item.is_table else {}
    kind = item.table.get("kind", item) if item.is_table else item
    chosen = one_of(**{name: name for name in _ALGORITHMS})(reader, kind)
    if chosen is WRONG:
        return WRONG
    make, fields = _ALGORITHMS[chosen]
    example = '{ kind = "aimd", slow_after = "1s" }'
    return table(make, fields, example)(reader, Item(rest, item.path, item.line))


def links(reader: Reader, item: Item) -> Any:
    """Read the links of a fallback: tables with a *value* or the name of what to *call*."""
    if not item.is_list:
        reader.findings.wrong(item, 'a list of tables such as { value = 0 } or { call = "module:function" }')
        return WRONG
    return [_link(reader, part) for part in item.parts]


def _link(reader: Reader, item: Item) -> Any:
    given = item.table
    if len(given) != 1 or not {"value", "call"} & given.keys():
        reader.findings.wrong(item, 'a table such as { value = 0 } or { call = "module:function" }')
        return WRONG
    return called(reader, given["call"]) if "call" in given else anything(reader, given["value"])


def reference(section: str) -> Form:
    """Read the name of a policy of another kind."""

    def read(reader: Reader, item: Item) -> Any:
        name = text(reader, item)
        return name if name is WRONG else Reference(section, name, item)

    return read


REFERENCES = 'a list of policies such as ["breaker.payments", "retry.payments"], the outermost first'


def references(reader: Reader, item: Item) -> Any:
    """Read the policies of a pipeline."""
    if not item.is_list or not all(isinstance(part.value, str) for part in item.parts):
        reader.findings.wrong(item, REFERENCES)
        return WRONG
    parts = [(part, *str(part.value).partition(".")) for part in item.parts]
    for part, _, dot, name in parts:
        if not (dot and name):
            reader.findings.wrong(part, 'a policy with its kind, such as "breaker.payments"')
    return [Reference(section, name, part) for part, section, dot, name in parts if dot and name]
