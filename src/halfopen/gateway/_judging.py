"""What a partner's answer is: evidence for its breaker, a verdict on a message, and what the program gets."""

from __future__ import annotations

import base64
import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from halfopen.classification import retry_after
from halfopen.retry_queue import LaneProfile, Report, Verdict, judge_status
from halfopen.retry_queue._reports import RULES
from halfopen.retry_queue.as2 import Mdn, judge_answer, parse_mdn

from ._errors import IllAnswerError, NoEvidenceError, UndeliveredError
from ._headers import MIC, RequestHead
from ._problems import Problem, problem
from ._upstream import Answer

__all__ = ["Judge", "Receipt", "is_ill"]

LARGEST_RECEIPT = 1024 * 1024
_MANY = 1000
_ALGORITHMS = frozenset({"md5", "sha1", "sha224", "sha256", "sha384", "sha512"})
_WRAPPED = ("multipart/signed", "application/pkcs7-", "application/x-pkcs7-")


@dataclass(frozen=True, slots=True)
class Receipt:
    """
    What a message needs so that the receipt for it can be judged.

    Attributes:
        wanted: A receipt was asked for.
        later: It comes by a request of the partner.
        mic: The MIC that the program computed.
        plain: The body, where it is in memory and neither signed nor encrypted nor compressed: its MIC is our business.
    """

    message_id: str | None
    wanted: bool
    later: bool
    mic: str | None
    plain: bytes | None = None

    @classmethod
    def of(cls, head: RequestHead, body: bytes | None) -> Receipt:
        """Return what a request says."""
        plain = body if is_plain(head.content_type) else None
        return cls(head.message_id, head.wants_receipt, head.receipt_later, head.orders.get(MIC), plain)

    def expected(self, mdn: Mdn | None) -> str | None:
        """Return the MIC that the receipt must show; None if nobody can know."""
        if self.mic is not None or self.plain is None or mdn is None or mdn.mic is None:
            return self.mic
        algorithm = mdn.mic.rpartition(",")[2].strip()
        name = algorithm.lower().replace("-", "")
        if name not in _ALGORITHMS:
            return None
        digest = hashlib.new(name, self.plain, usedforsecurity=False).digest()
        return f"{base64.b64encode(digest).decode()}, {algorithm}"


def is_plain(content_type: str) -> bool:
    """Say whether a body of this type is neither signed, encrypted nor compressed (RFC 4130, 7.3.1)."""
    return bool(content_type) and not content_type.lstrip().startswith(_WRAPPED)


class Judge:
    """Judges the answers of one partner."""

    def __init__(self, name: str, profile: LaneProfile, *, as2: bool) -> None:
        self._name = name
        self._profile = profile
        self._as2 = as2
        self._failed_once: OrderedDict[str, None] = OrderedDict()

    async def check(self, answer: Answer, receipt: Receipt) -> Report | None:
        """
        Look at an answer, before anything of it is passed back; return the verdict if there is one.

        Raises:
            IllAnswerError: The status tells of an ill service.
            UndeliveredError: The receipt, or its absence, does.
            NoEvidenceError: It is nobody's illness: a redirect, a refused message.
        """
        status = answer.status_code
        if status == 101 or (300 <= status < 400 and status != 304):
            answer.close()
            raise NoEvidenceError(self._name, _redirected(self._name, answer))
        if not self._as2:
            if is_ill(status, self._profile):
                raise IllAnswerError(answer)
            return None
        report = await self.report(answer, receipt)
        outcome = self._outcome(report, receipt)
        if outcome == "failure":
            raise UndeliveredError(report, answer)
        if outcome == "ignored":
            raise NoEvidenceError(self._name, None, answer, report)
        return report

    async def report(self, answer: Answer, receipt: Receipt) -> Report:
        """Return the verdict on a message, by status and, where one was asked for, by the receipt."""
        later = retry_after(answer)
        if not self._as2 or not receipt.wanted or not 200 <= answer.status_code < 300:
            return judge_status(answer.status_code, self._profile, retry_after=later)
        body = await answer.read(LARGEST_RECEIPT)
        if body is None:
            return Report(Verdict.UNKNOWN, f"HTTP {answer.status_code} with a body too large for a receipt")
        content_type = answer.headers.get("Content-Type", "")
        return judge_answer(
            status=answer.status_code,
            content_type=content_type,
            body=body,
            message_id=receipt.message_id or "",
            profile=self._profile,
            mic=receipt.expected(parse_mdn(content_type, body)),
            asynchronous=receipt.later,
            retry_after=later,
        )

    def _outcome(self, report: Report, receipt: Receipt) -> str:
        if report.verdict is Verdict.BACK_END_ERROR and receipt.message_id:
            # One poison document must not open the breaker for everybody.
            if receipt.message_id in self._failed_once:
                return "ignored"
            self._failed_once[receipt.message_id] = None
            if len(self._failed_once) > _MANY:
                self._failed_once.popitem(last=False)
        return RULES[report.verdict].outcome


def is_ill(status: int, profile: LaneProfile) -> bool:
    """Say whether a status tells of an ill service, as every integration reads it, or as the partner's profile says."""
    if status in profile.refuse_statuses:
        return False
    return status in (408, 429) or status >= 500 or status in profile.retry_statuses


def _redirected(name: str, answer: Answer) -> Problem:
    members: dict[str, Any] = {"partner": name, "delivery": "none", "upstream_status": answer.status_code}
    to = answer.headers.get("Location")
    if to is not None:
        members["location"] = to[:200]
    detail = f"{name} answered with {answer.status_code}, and the gateway follows no redirects: mend its url"
    return problem(502, "redirect", detail, **members)
