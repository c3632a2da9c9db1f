"""Read the gateway's tables of a configuration file; their mistakes are told together with those of the policies."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from halfopen.config import Configuration
from halfopen.config.forms import (
    WRONG,
    Form,
    Reader,
    duration,
    flag,
    named,
    number,
    one_of,
    optional,
    place_mistakes,
    table,
    text,
    texts,
    whole,
)  # fmt: skip
from halfopen.config.items import Findings, Item
from halfopen.config.loading import document, load
from halfopen.errors import ConfigError
from halfopen.retry_queue import LaneProfile, MessageSchedule

from ._partner import UNFIT
from ._settings import GatewaySettings, PartnerSettings

__all__ = ["GatewayConfiguration", "read"]

T = TypeVar("T")

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(|B|kB|MB|GB|KiB|MiB|GiB)", re.ASCII)
_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@dataclass(frozen=True, slots=True)
class GatewayConfiguration:
    """
    A file's gateway.

    Attributes:
        file: The file, where the policies are as well.
        partners: By name.
    """

    file: str
    settings: GatewaySettings
    partners: Mapping[str, PartnerSettings]


def size(reader: Reader, item: Item) -> Any:
    """Read a number of bytes: ``65536``, "64 KiB", "500 MB"."""
    if isinstance(item.value, int):
        return item.value
    found = _SIZE.fullmatch(item.value.strip()) if isinstance(item.value, str) else None
    if found is None:
        reader.findings.wrong(item, 'a size such as 65536 (bytes), "64 KiB" or "500 MB"')
        return WRONG
    return int(float(found[1]) * _UNITS[found[2]])


def _listed(form: Form) -> Form:
    def read(reader: Reader, item: Item) -> Any:
        if not isinstance(item.value, list):
            reader.findings.wrong(item, "a list")
            return WRONG
        read = [form(reader, each) for each in cast("list[Item]", item.value)]
        return WRONG if any(value is WRONG for value in read) else frozenset(read)

    return read


_SCHEDULE: dict[str, Form] = {
    "first": duration, "factor": number, "cap": duration, "jitter": number, "attempt_limit": whole,
}  # fmt: skip
_PROFILE: dict[str, Form] = {
    "limit": whole,
    "rate": optional(number),
    "timeout": duration,
    "trial_timeout": duration,
    "lease_margin": duration,
    "trial_size": size,
    "schedule": table(MessageSchedule, _SCHEDULE, '{ first = "5m", attempt_limit = 10 }'),
    "receipt_deadline": duration,
    "receipt_resends": whole,
    "receipt_failures": flag,
    "refusals_to_hold": whole,
    "back_end_tries": whole,
    "spread": duration,
    "after_inconclusive": one_of(close="close", reopen="reopen"),
    "duplicate_texts": _listed(text),
    "retry_statuses": _listed(whole),
    "refuse_statuses": _listed(whole),
    "dispositions": texts,
}
_PARTNER: dict[str, Form] = {
    "url": text,
    "pipeline": text,
    "breaker": text,
    "store_and_forward": flag,
    "as2": flag,
    "connect_timeout": duration,
    "timeout": duration,
    "connections": whole,
    "headers": texts,
    "ca": text,
    "certificate": text,
    "key": text,
    "deadline": optional(duration),
    "profile": table(LaneProfile, _PROFILE, "{ limit = 8 }"),
}
_GATEWAY: dict[str, Form] = {
    "host": text,
    "port": whole,
    "token": text,
    "certificate": text,
    "key": text,
    "queue": text,
    "max_body": size,
    "max_header": size,
    "header_timeout": duration,
    "idle_timeout": duration,
    "keep_alive": duration,
    "time_limit": duration,
    "max_connections": whole,
    "drain": duration,
}


def read(
    path: str | os.PathLike[str],
    *,
    names: Mapping[str, Any] | None = None,
    imports: bool = True,
    environment: Mapping[str, str] | None = None,
) -> GatewayConfiguration:
    """
    Read and check a file: its gateway, its partners and its policies.

    Paths in it are relative to its folder. The arguments are those of `halfopen.config.load`.

    Raises:
        ConfigError: Something is wrong; every mistake is named, with path and line.
    """
    findings = Findings(os.fspath(path))
    root, _ = document(path, findings, environment)
    reader = Reader(findings, names or {}, imports)
    tables: Mapping[str, Item] = root.value if root is not None and root.is_table else {}
    settings = _gateway(tables.get("gateway"), reader)
    partners = _partners(tables.get("partner"), reader)
    load_policies = partial(load, path, names=names, imports=imports, environment=environment)
    _check_policies(load_policies, partners, tables.get("partner"), findings)
    if settings is not None and not settings.queue:
        for name, partner in partners.items():
            if partner.store_and_forward:
                where = tables["partner"].value[name].value["store_and_forward"]
                findings.wrong(where, "to store and forward, [gateway] needs a queue", "conflict")
    findings.done()
    assert settings is not None  # otherwise there were findings
    return GatewayConfiguration(findings.file, settings, partners)


def _gateway(item: Item | None, reader: Reader) -> GatewaySettings | None:
    item = item or Item({}, ("gateway",))
    values = _made(reader, item, _GATEWAY, "a table: [gateway]")
    if values is None:
        return None
    for key in ("certificate", "key", "queue"):
        if values.get(key) and not _is_conninfo(values[key]):
            values[key] = _beside(reader.findings.file, values[key])
    made: GatewaySettings | None = _build(reader, item, partial(GatewaySettings, **values))
    return made


def _partners(item: Item | None, reader: Reader) -> dict[str, PartnerSettings]:
    if item is None or not item.is_table or not item.value:
        where = item or Item({}, ("partner",))
        reader.findings.wrong(where, "needed: at least one table [partner.NAME] with its url", "missing")
        return {}
    found: dict[str, PartnerSettings] = {}
    for name, below in item.value.items():
        values = _made(reader, below, _PARTNER, f"a table: [partner.{name}]")
        if values is None:
            continue
        if "url" not in values:
            if "url" not in below.value:
                words = "needed: a URL such as https://partner.example/as2"
                reader.findings.wrong(below, words, "missing", below="url")
            continue
        for key in ("ca", "certificate", "key"):
            if values.get(key):
                values[key] = _beside(reader.findings.file, values[key])
        made: PartnerSettings | None = _build(reader, below, partial(PartnerSettings, name=name, **values))
        if made is not None:
            found[name] = made
    return found


def _made(reader: Reader, item: Item, fields: Mapping[str, Form], allowed: str) -> dict[str, Any] | None:
    if not item.is_table:
        reader.findings.wrong(item, allowed)
        return None
    return named(reader, item.value, fields)


def _build(reader: Reader, item: Item, make: Callable[[], T]) -> T | None:
    try:
        return make()
    except ConfigError as error:
        place_mistakes(reader, item, item.value, error.mistakes, partial=False)
        return None


def _check_policies(
    load_policies: Callable[[], Configuration],
    partners: Mapping[str, PartnerSettings],
    item: Item | None,
    findings: Findings,
) -> None:
    try:
        policies = load_policies()
    except ConfigError as error:
        findings.mistakes += [mistake for mistake in error.mistakes if mistake not in findings.mistakes]
        return
    for name, partner in partners.items():
        for section in ("pipeline", "breaker"):
            wanted = getattr(partner, section)
            kind, _, policy = wanted.partition(".")
            if wanted and (kind != section or policies.find(section, policy) is None):
                where = item.value[name].value[section] if item is not None else Item(None, ())
                findings.wrong(where, f"there is no {wanted} in this file; write it as {section}.NAME", "missing")
        _check_fit(policies, name, partner.pipeline, item, findings)


def _check_fit(policies: Configuration, name: str, pipeline: str, item: Item | None, findings: Findings) -> None:
    entry = policies.find("pipeline", pipeline.partition(".")[2])
    if entry is None or item is None:
        return
    for reference in entry.values["policies"]:
        why = UNFIT.get(reference.section)
        if why is not None:
            words = f"a pipeline without {reference.section}.{reference.name}: {why}"
            findings.wrong(item.value[name].value["pipeline"], words, "conflict")


def _is_conninfo(queue: str) -> bool:
    return queue.startswith(("postgres://", "postgresql://")) or "=" in queue


def _beside(file: str, path: str) -> str:
    return os.fspath(Path(file).resolve().parent / path)
