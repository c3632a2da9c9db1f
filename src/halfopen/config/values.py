"""The notations of a file: durations, shares, and values from the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

__all__ = [
    "FromEnvironment",
    "MissingVariableError",
    "format_duration",
    "format_share",
    "parse_duration",
    "parse_java_duration",
    "parse_share",
    "substitute",
]

_UNITS = {"d": Decimal(86400), "h": Decimal(3600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("0.001")}
_NUMBER = r"\d{1,15}(?:\.\d{1,350})?"
_DURATION = re.compile(r"(-?)" + "".join(rf"(?:({_NUMBER})\s*{unit})?\s*" for unit in _UNITS), re.ASCII)
_SHARE = re.compile(rf"(-?{_NUMBER})\s*%", re.ASCII)

_JAVA_UNITS = {"ns": "1e-9", "us": "1e-6", "ms": "1e-3", "s": "1", "m": "60", "h": "3600", "d": "86400"}
_JAVA_SIMPLE = re.compile(r"([+-]?\d{1,18})\s*([a-z]{0,2})", re.ASCII)
_ISO = re.compile(
    r"([+-]?)P(?:([+-]?\d+)D)?(?:T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+(?:[.,]\d{1,9})?)S)?)?", re.ASCII | re.I
)


def parse_duration(text: str) -> float | None:
    """
    Return the seconds that a text such as ``30s``, ``1m30s`` or ``250ms`` says; None if it says none.

    Units from the largest to the smallest, each once: d, h, m, s, ms.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()[1:]):
        return None
    total = sum(
        (Decimal(n) * unit for n, unit in zip(found.groups()[1:], _UNITS.values(), strict=True) if n), Decimal()
    )
    return float(-total if found[1] else total)


def format_duration(seconds: float) -> str:
    """Return *seconds* in the notation that `parse_duration` reads back to the same number."""
    left = Decimal(repr(float(seconds)))
    sign, left = ("-", -left) if left < 0 else ("", left)
    if left == 0:
        return "0s"
    if left < 1:
        return f"{sign}{_digits(left * 1000)}ms"
    parts: list[str] = []
    for unit in ("d", "h", "m"):
        whole = left // _UNITS[unit]
        left -= whole * _UNITS[unit]
        parts += [f"{_digits(whole)}{unit}"] if whole else []
    parts += [f"{_digits(left)}s"] if left else []
    return sign + "".join(parts)


def parse_share(text: str) -> float | None:
    """Return the share that a text such as ``50%`` says; None if it says none."""
    found = _SHARE.fullmatch(text.strip())
    return None if found is None else float(Decimal(found[1]) / 100)


def format_share(share: float) -> str:
    """Return *share* as a percentage that `parse_share` reads back to the same number."""
    return f"{_digits(Decimal(repr(float(share))) * 100)}%"


def _digits(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def parse_java_duration(value: object) -> float | None:
    """
    Return the seconds that Spring Boot reads in *value*; None if it reads none.

    A bare number is milliseconds. Texts: ``500``, ``500ms``, ``30s``, ``1m`` (ns, us, ms, s, m, h, d), and ISO 8601
    such as ``PT1M30S``.
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    text = str(value).strip()
    simple = _JAVA_SIMPLE.fullmatch(text.lower())
    if simple is not None:
        factor = _JAVA_UNITS.get(simple[2] or "ms")
        return None if factor is None else float(Decimal(simple[1]) * Decimal(factor))
    found = _ISO.fullmatch(text)
    if found is None or not any(found.groups()[1:]):
        return None
    try:
        days, hours, minutes, seconds = (Decimal((part or "0").replace(",", ".")) for part in found.groups()[1:])
    except InvalidOperation:
        return None
    total = float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    return -total if found[1] == "-" else total


class FromEnvironment(str):
    """A text with a value from the environment in it; where a number is wanted, it is read as one."""

    __slots__ = ()


class MissingVariableError(Exception):
    """A text asks for a variable that is not set, or asks in a way nobody can read."""


_PLACE = re.compile(r"\$\$\{|\$\{([A-Za-z_]\w*)(?::-([^{}]*))?\}|\$\{", re.ASCII)
_SPRING_PLACE = re.compile(r"\$\$\{|\$\{([A-Za-z_][\w.-]*)(?::([^{}]*))?\}|\$\{", re.ASCII)


def substitute(text: str, environment: Mapping[str, str], *, spring: bool = False) -> str:
    """
    Fill in ``${NAME}`` and ``${NAME:-default}``; ``$${`` stands for ``${`` itself.

    The default counts where NAME is not set or empty, as in a shell. With *spring* the default stands behind a single
    colon, and ``my.property`` may also be the variable MY_PROPERTY.

    Raises:
        MissingVariableError: A variable without a default is not set, or a ``${`` has another form.
    """

    def fill(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        if found[1] is None:
            form = "${NAME:default}" if spring else "${NAME:-default}"
            raise MissingVariableError(f"a variable is written ${{NAME}} or {form}, and a bare ${{ is written $${{")
        value = _look_up(found[1], environment, spring)
        if not value and found[2] is not None:
            return found[2]
        if value is None:
            raise MissingVariableError(f"the environment variable {found[1]} is not set and has no default here")
        return value

    if "${" not in text:
        return text
    return FromEnvironment((_SPRING_PLACE if spring else _PLACE).sub(fill, text))


def _look_up(name: str, environment: Mapping[str, str], spring: bool) -> str | None:
    value = environment.get(name)
    if value is None and spring:
        value = environment.get(re.sub(r"\W", "_", name.replace("-", "")).upper())
    return value
