"""
Policies from a file: `halfopen.toml`, the same as YAML, or the YAML of resilience4j.

Reading checks everything and names every mistake at once; only then is anything made or changed.
"""

from halfopen.config.applying import Changes, apply
from halfopen.config.configuration import Configuration, Entry, Note
from halfopen.config.conversion import convert
from halfopen.config.loading import load
from halfopen.config.values import format_duration, format_share, parse_duration, parse_share

__all__ = [
    "Changes",
    "Configuration",
    "Entry",
    "Note",
    "apply",
    "convert",
    "format_duration",
    "format_share",
    "load",
    "parse_duration",
    "parse_share",
]
