"""
How an exchange with a partner fails, in words that the policies of its pipeline understand.

What tells against the partner is a ConnectionError or a TimeoutError, as from any client. What says nothing about it is
a RejectedError: breakers ignore those, whatever their classifier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfopen.errors import RejectedError

from ._problems import Problem

if TYPE_CHECKING:
    from halfopen.retry_queue import Report

    from ._upstream import Answer

__all__ = [
    "BadAnswerError",
    "BrokenOffError",
    "ClientGoneError",
    "IllAnswerError",
    "NoEvidenceError",
    "NotSentError",
    "TooSlowError",
    "UndeliveredError",
    "WrongAnswerError",
]


class NotSentError(ConnectionError):
    """No connection: surely not delivered."""


class BrokenOffError(ConnectionError):
    """The connection broke after the request had begun: nobody knows whether it arrived."""


class BadAnswerError(BrokenOffError):
    """The answer is not HTTP, or larger than a gateway takes."""


class TooSlowError(TimeoutError):
    """No answer in time, after the request had begun."""


class IllAnswerError(ConnectionError):
    """
    An answer that tells of an ill service: 408, 429, 5xx. It is open still, for the program to read.

    Attributes:
        response: The answer.
    """

    def __init__(self, response: Answer) -> None:
        super().__init__(f"HTTP {response.status_code}")
        self.response = response


class UndeliveredError(ConnectionError):
    """
    What the partner answered is a failure for a message, whatever the status says: a 200 without an MDN.

    Attributes:
        report: The verdict.
        retry_after: Seconds for which the partner asks to be left alone.
        answer: The answer, if it is open still.
    """

    def __init__(self, report: Report, answer: Answer | None = None) -> None:
        super().__init__(report.detail)
        self.report = report
        self.retry_after = report.retry_after
        self.answer = answer


class NoEvidenceError(RejectedError):
    """
    An exchange that ended without evidence about the partner.

    Attributes:
        problem: What the program is told, if the answer is not for it.
        answer: The answer for the program, open still.
        report: The verdict on it.
    """

    def __init__(
        self, name: str, problem: Problem | None = None, answer: Answer | None = None, report: Report | None = None
    ) -> None:
        super().__init__(name)
        self.problem = problem
        self.answer = answer
        self.report = report

    def _sentence(self) -> str:
        return self.problem.detail if self.problem is not None else f"{self.name}: no evidence"


class ClientGoneError(NoEvidenceError):
    """The program went away in the middle."""


class WrongAnswerError(Exception):
    """A policy answered in place of the partner with something that is no HTTP answer."""
