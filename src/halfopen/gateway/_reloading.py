"""A changed file: partners and limits count at once, what cannot change under way is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from halfopen.errors import ConfigError, Mistake

from ._reading import GatewayConfiguration, read
from ._settings import GatewaySettings
from ._upstream import tls_of

if TYPE_CHECKING:
    from ._app import Gateway

__all__ = ["follow"]

_log = logging.getLogger("halfopen.gateway")
_FIXED = ("host", "port", "certificate", "key", "queue", "keep_alive", "drain")


def follow(gateway: Gateway, names: Mapping[str, Any]) -> None:
    """Let *gateway* change with the file of its registry."""
    gateway.registry._source.followers.append(partial(_prepare, gateway, names))


def _prepare(gateway: Gateway, names: Mapping[str, Any], path: str) -> Callable[[], object]:
    """
    Read and check a file; return what puts it in force.

    Raises:
        ConfigError: Something is wrong; nothing has changed.
    """
    found = read(path, names=names)
    _check_certificates(found)
    return partial(_change, gateway, found)


def _change(gateway: Gateway, found: GatewayConfiguration) -> None:
    kept = {name: getattr(gateway.settings, name) for name in _FIXED}
    fixed = [f"gateway.{name}" for name in _FIXED if getattr(found.settings, name) != kept[name]]
    if fixed:
        _log.warning("%s: %s need a restart and stay as they were", found.file, ", ".join(fixed))
    settings: GatewaySettings = replace(found.settings, **kept)
    gateway.change(settings, found.partners)


def _check_certificates(found: GatewayConfiguration) -> None:
    mistakes: list[Mistake] = []
    for name, settings in found.partners.items():
        try:
            tls_of(settings)
        except OSError as error:  # ssl.SSLError is one as well
            mistakes.append(
                Mistake(f"partner.{name}.ca", settings.ca or settings.certificate, f"readable PEM: {error}")
            )
    if mistakes:
        raise ConfigError(mistakes)
