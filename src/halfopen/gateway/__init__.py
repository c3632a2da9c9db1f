"""An HTTP egress gateway for programs in any language: one partner, one pipeline; refused messages can be stored."""

from ._app import Gateway
from ._reading import GatewayConfiguration, read
from ._server import gateway_from_file, run, serve
from ._settings import GatewaySettings, PartnerSettings

__all__ = [
    "Gateway",
    "GatewayConfiguration",
    "GatewaySettings",
    "PartnerSettings",
    "gateway_from_file",
    "read",
    "run",
    "serve",
]
