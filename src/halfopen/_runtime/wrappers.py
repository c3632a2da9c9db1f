"""
Wrappers made for one function: the same parameters, no packing of arguments, and nothing in between but the guard.

A wrapper with `*args, **kwargs` pays about 200 ns for packing and unpacking keywords. So the source of a wrapper is
written for the very signature of the function, as `dataclasses` does for `__init__`. A call with wrong arguments then
fails before the guard: it never was a call of the dependency.
"""

from __future__ import annotations

import functools
import inspect
import keyword
import linecache
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, cast

__all__ = ["build", "kind_of"]

_CALLING = {
    "function": ("def", "_h_fn({call})", "return _h_gated_call(_h_fn, {args}, {kwargs})"),
    "coroutine": ("async def", "await _h_fn({call})", "return await _h_gated_acall(_h_fn, {args}, {kwargs})"),
    "generator": ("def", "yield from _h_fn({call})", "return (yield from _h_gated_generator(_h_fn, {args}, {kwargs}))"),
}

_SOURCE = """
def _h_factory({names}):
    {define} {name}({parameters}):
        _h_state = _h_circuit.state
        _h_began = _h_now()
        if _h_state.gated:
            if _h_began < _h_state.shut_until:
                raise _h_refuse(_h_state, _h_began)
            {gated}
        try:
            _h_result = {plain}
        except _h_anything as _h_error:
            _h_failed(_h_state, _h_began, _h_error)
            raise
        _h_spent = (_h_ended := _h_now()) - _h_began
        if _h_ended < _h_state.calm_until and _h_spent <= _h_state.slow_after:
            _h_state.quiet.append(_h_spent)
        else:
            _h_succeeded(_h_state, _h_began, _h_ended, _h_result)
        return _h_result
    return {name}
"""


def kind_of(fn: Callable[..., Any]) -> str:
    """Return ``function``, ``coroutine``, ``generator`` or ``async_generator`` for what a call of *fn* makes."""
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    cls = type(cast("object", inner))
    called = inner if inspect.isroutine(inner) else inspect.getattr_static(cls, "__call__", None)
    for candidate in (inner, called):
        if inspect.iscoroutinefunction(candidate):
            return "coroutine"
        if inspect.isasyncgenfunction(candidate):
            return "async_generator"
        if inspect.isgeneratorfunction(candidate):
            return "generator"
    return "function"


def build(fn: Callable[..., Any], kind: str, names: dict[str, Any]) -> Callable[..., Any]:
    """
    Make the wrapper of *fn*.

    Args:
        fn: What is guarded.
        kind: ``function``, ``coroutine`` or ``generator``.
        names: What the source refers to, by names that begin with ``_h_``.
    """
    parameters, call, args, kwargs, defaults = _signature(fn)
    define, plain, gated = _CALLING[kind]
    bound = {**names, "_h_fn": fn, "_h_anything": BaseException, **defaults}
    source = _SOURCE.format(
        names=", ".join(bound),
        define=define,
        name=_name(fn),
        parameters=parameters,
        plain=plain.format(call=call),
        gated=gated.format(args=args, kwargs=kwargs),
    )
    return _factory(source)(**bound)  # type: ignore[no-any-return]


def _name(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__name__", "guarded")
    plain = name.isidentifier() and not keyword.iskeyword(name) and not name.startswith(("_h_", "__debug__"))
    return name if plain else "guarded"


@functools.lru_cache(maxsize=1024)
def _factory(source: str) -> Any:
    filename = f"<halfopen guard {abs(hash(source)):x}>"
    scope: dict[str, Any] = {}
    exec(compile(source, filename, "exec"), scope)
    # Tracebacks and debuggers show the source.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return scope["_h_factory"]


def _signature(fn: Callable[..., Any]) -> tuple[str, str, str, str, dict[str, Any]]:
    """Return the texts of parameters, call, positional tuple and keyword dict, and the defaults by name."""
    if type(fn) is not FunctionType:
        return "*_h_args, **_h_kwargs", "*_h_args, **_h_kwargs", "_h_args", "_h_kwargs", {}
    code: CodeType = fn.__code__
    names = code.co_varnames
    positional = names[: code.co_argcount]
    keywords = names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    rest = list(names[code.co_argcount + code.co_kwonlyargcount :])
    star = rest.pop(0) if code.co_flags & inspect.CO_VARARGS else None
    stars = rest.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else None
    every = (*positional, *keywords, *filter(None, (star, stars)))
    if any(name.startswith("_h_") or not name.isidentifier() for name in every):
        return "*_h_args, **_h_kwargs", "*_h_args, **_h_kwargs", "_h_args", "_h_kwargs", {}
    defaults: dict[str, Any] = {}
    parameters = _positional(fn, positional, code.co_posonlyargcount, defaults)
    call = list(positional)
    if star is not None or keywords:
        parameters.append(f"*{star}" if star is not None else "*")
    if star is not None:
        call.append(f"*{star}")
    parameters += [_with_default(name, (fn.__kwdefaults__ or {}), defaults) for name in keywords]
    args = "(" + "".join(f"{item}, " for item in call) + ")"
    call += [f"{name}={name}" for name in keywords]
    given = [f"{name!r}: {name}" for name in keywords]
    if stars is not None:
        parameters.append(f"**{stars}")
        call.append(f"**{stars}")
        given.append(f"**{stars}")
    return ", ".join(parameters), ", ".join(call), args, "{" + ", ".join(given) + "}", defaults


def _positional(fn: FunctionType, names: tuple[str, ...], only: int, defaults: dict[str, Any]) -> list[str]:
    values = fn.__defaults__ or ()
    given = dict(zip(names[len(names) - len(values) :], values, strict=True))
    parameters = [_with_default(name, given, defaults) for name in names]
    if only:
        parameters.insert(only, "/")
    return parameters


def _with_default(name: str, given: dict[str, Any], defaults: dict[str, Any]) -> str:
    if name not in given:
        return name
    holder = f"_h_default_{len(defaults)}"
    defaults[holder] = given[name]
    return f"{name}={holder}"
