"""Metrics as text: the Prometheus format 0.0.4 and OpenMetrics 1.0."""

from __future__ import annotations

from halfopen.instrumentation._samples import Header, Kind, Scrape

__all__ = ["OPENMETRICS", "TEXT", "negotiate", "openmetrics_text", "prometheus_text", "wants_gzip"]

TEXT = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of the Prometheus format."""
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
"""Content type of OpenMetrics."""


def prometheus_text(scrape: Scrape) -> str:
    """Return a scrape in the Prometheus text format."""
    parts: list[str] = []
    for header, chunks in scrape.chunks().items():
        parts.append(f"# HELP {header.name} {_escape_help(header.help)}\n# TYPE {header.name} {header.kind.value}\n")
        parts += chunks
    return "".join(parts)


def openmetrics_text(scrape: Scrape) -> str:
    """Return a scrape as OpenMetrics."""
    parts: list[str] = []
    for header, chunks in scrape.chunks().items():
        name = _openmetrics_name(header)
        unit = f"# UNIT {name} {header.unit}\n" if header.unit else ""
        text = _escape_help(header.help).replace('"', r"\"")
        parts.append(f"# TYPE {name} {header.kind.value}\n{unit}# HELP {name} {text}\n")
        parts += chunks
    return "".join([*parts, "# EOF\n"])


def negotiate(accept: str) -> bool:
    """Say whether an Accept header asks for OpenMetrics rather than for the Prometheus format."""
    qualities = _qualities(accept)
    asked = qualities.get("application/openmetrics-text", 0.0)
    return asked > 0 and asked >= qualities.get("text/plain", 0.0)


def wants_gzip(encodings: str) -> bool:
    """Say whether an Accept-Encoding header takes gzip."""
    qualities = _qualities(encodings)
    return qualities.get("gzip", qualities.get("*", 0.0)) > 0


def _qualities(header: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in header.split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        found[kind] = max(found.get(kind, 0.0), _quality(parameters))
    return found


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


def _openmetrics_name(header: Header) -> str:
    return header.name.removesuffix("_total") if header.kind is Kind.COUNTER else header.name


def _escape_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
