"""The three outcomes of a call, and what a classifier may answer."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["FAILURE", "IGNORED", "SUCCESS", "Classified", "Outcome"]


class Outcome(StrEnum):
    """
    What a finished call says about the dependency.

    SUCCESS is evidence of health, FAILURE of illness; IGNORED is no evidence and gives the permit back.
    """

    SUCCESS = "success"
    FAILURE = "failure"
    IGNORED = "ignored"


# A member fetched from its enumeration costs 50 ns on Python 3.11, one from a module 5.
SUCCESS, FAILURE, IGNORED = Outcome

Classified = Outcome | tuple[Outcome, float | None]
"""An outcome, alone or with the seconds after which the dependency asks to be tried again."""
