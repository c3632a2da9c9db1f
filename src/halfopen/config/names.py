"""Things of the program that a file names: exception classes, functions, classifiers."""

from __future__ import annotations

import builtins
from importlib import import_module
from typing import Any, Final

from halfopen.config.forms import WRONG, Reader
from halfopen.config.items import Item

__all__ = ["called", "errors", "thing"]

_ERRORS = {
    name: kind for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception)
}


def errors(reader: Reader, item: Item) -> Any:
    """Read the name of an exception class, or a list of them: "TimeoutError", "httpx:TransportError"."""
    parts = item.parts if item.is_list else [item]
    found = [_error(reader, part) for part in parts]
    return WRONG if any(kind is WRONG for kind in found) else tuple(found)


def _error(reader: Reader, item: Item) -> Any:
    name = item.value
    if isinstance(name, str) and ":" not in name and name not in reader.names:
        if name in _ERRORS:
            return _ERRORS[name]
        near = reader.findings.nearest(name, _ERRORS)
        hint = f"; did you mean {near}?" if near else ""
        reader.findings.wrong(
            item, f'an exception class such as "TimeoutError" or "module:Name"{hint}', suggestion=near
        )
        return WRONG
    kind = _object(reader, item, 'an exception class such as "TimeoutError" or "module:Name"')
    if kind is UNRESOLVED:
        return type(str(name).rpartition(":")[2], (Exception,), {"__module__": "unresolved"})
    if kind is not WRONG and not (isinstance(kind, type) and issubclass(kind, Exception)):
        reader.findings.wrong(item, "the name of a class below Exception")
        return WRONG
    return kind


def called(reader: Reader, item: Item) -> Any:
    """Read the name of something that can be called: "module:attribute", or a name the program handed in."""
    found = _object(reader, item, 'the name of something that can be called, such as "module:function"')
    if found is UNRESOLVED:
        return _not_imported
    if found is not WRONG and not callable(found):
        reader.findings.wrong(item, 'the name of something that can be called, such as "module:function"')
        return WRONG
    return found


def thing(reader: Reader, item: Item) -> Any:
    """Read the name of any object; None where it was not imported."""
    found = _object(reader, item, 'a name such as "module:attribute"')
    return None if found is UNRESOLVED else found


UNRESOLVED: Final = object()


def _not_imported(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("this configuration was read without importing what it names")


def _object(reader: Reader, item: Item, allowed: str) -> Any:
    name = item.value
    if not isinstance(name, str):
        reader.findings.wrong(item, allowed)
        return WRONG
    if name in reader.names:
        return reader.names[name]
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        near = reader.findings.nearest(name, reader.names)
        reader.findings.wrong(item, allowed, suggestion=near)
        return WRONG
    return _imported(reader, item, module, attribute) if reader.imports else UNRESOLVED


def _imported(reader: Reader, item: Item, module: str, attribute: str) -> Any:
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing runs code, which may raise anything
        reader.findings.wrong(item, f"{item.value!r} cannot be imported: {error}", "unreadable")
        return WRONG
    return found
