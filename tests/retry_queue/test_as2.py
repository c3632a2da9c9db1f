"""Reading receipts as real partners write them."""

from __future__ import annotations

import pytest

from halfopen.retry_queue import LaneProfile, Verdict
from halfopen.retry_queue.answers import judge_exception, judge_status
from halfopen.retry_queue.as2 import Disposition, judge_answer, parse_disposition, parse_mdn, same_mic

PREFIX = "automatic-action/MDN-sent-automatically; "


def mdn(
    disposition: str = f"{PREFIX}processed",
    message_id: str = "<m1@test>",
    mic: str | None = "AAAA, sha-256",
    content_type: str = 'multipart/report; report-type=disposition-notification;\r\n boundary="b"',
) -> tuple[str, bytes]:
    fields = [f"Original-Message-ID: {message_id}", f"Disposition: {disposition}"]
    if mic is not None:
        fields.append(f"Received-Content-MIC: {mic}")
    text = ["--b", "Content-Type: text/plain", "", "Thank you."]
    machine = ["--b", "Content-Type: message/disposition-notification", "", *fields, "", "--b--", ""]
    body = "\r\n".join([*text, *machine])
    return content_type, body.encode()


def judged(
    answer: tuple[str, bytes] | None = None,
    *,
    status: int = 200,
    profile: LaneProfile | None = None,
    asynchronous: bool = False,
    good_signature: bool = True,
) -> Verdict:
    content_type, body = answer or mdn()
    return judge_answer(
        status=status,
        content_type=content_type,
        body=body,
        message_id="<m1@test>",
        profile=profile or LaneProfile(),
        mic="AAAA, sha256",
        asynchronous=asynchronous,
        verify=lambda _: good_signature,
    ).verdict


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("automatic-action/MDN-sent-automatically; processed", Disposition("processed")),
        ("Automatic-Action/mdn-sent-automatically;Processed", Disposition("processed")),
        (f"{PREFIX}processed/Warning: duplicate-document", Disposition("processed", "warning", "duplicate-document")),
        (f"{PREFIX}processed/error:decryption-failed", Disposition("processed", "error", "decryption-failed")),
        (f"{PREFIX}processed/Error: Decryption failed", Disposition("processed", "error", "decryption-failed")),
        (
            f"{PREFIX}processed / error : unexpected-processing-error",
            Disposition("processed", "error", "unexpected-processing-error"),
        ),
        (f"{PREFIX}processed/error", Disposition("processed", "error", "")),
        (f"{PREFIX}failed/Failure: unsupported format", Disposition("failed", "failure", "unsupported-format")),
        (f"{PREFIX}displayed", None),
        ("", None),
    ],
)
def test_every_spelling_of_a_disposition_is_read(written: str, read: Disposition | None) -> None:
    assert read == parse_disposition(written)


@pytest.mark.parametrize(
    ("disposition", "verdict"),
    [
        ("processed", Verdict.DELIVERED),
        ("processed/warning: duplicate-document", Verdict.DELIVERED),
        ("processed/warning: authentication-failed", Verdict.DELIVERED),
        ("processed/error: decryption-failed", Verdict.REFUSED),
        ("processed/error: unknown-trading-partner", Verdict.REFUSED),
        ("processed/error", Verdict.REFUSED),
        ("processed/error: gibberish", Verdict.REFUSED),
        ("failed/failure: unsupported format", Verdict.REFUSED),
        ("processed/error: unexpected-processing-error", Verdict.BACK_END_ERROR),
        ("displayed", Verdict.UNKNOWN),
    ],
)
def test_a_disposition_decides(disposition: str, verdict: Verdict) -> None:
    assert verdict is judged(mdn(f"{PREFIX}{disposition}"))


def test_a_receipt_for_another_message_is_a_security_matter() -> None:
    assert Verdict.SECURITY is judged(mdn(message_id="<other@test>"))


def test_another_mic_is_no_proof_whatever_the_word_says() -> None:
    assert Verdict.SECURITY is judged(mdn(mic="BBBB, sha256"))


def test_a_bad_signature_comes_before_the_disposition() -> None:
    assert Verdict.SECURITY is judged(good_signature=False)


def test_a_missing_mic_is_noted_as_unverifiable() -> None:
    content_type, body = mdn(mic=None)

    report = judge_answer(
        status=200,
        content_type=content_type,
        body=body,
        message_id="m1@test",
        profile=LaneProfile(),
        mic="AAAA, sha256",
    )

    assert Verdict.DELIVERED is report.verdict
    assert "cannot be verified" in report.detail


@pytest.mark.parametrize(
    "answer",
    [("text/plain", b""), ("text/html", b"<html>maintenance</html>"), (mdn()[0], mdn()[1][:60])],
    ids=["empty", "html", "cut off"],
)
def test_a_200_without_a_receipt_is_a_false_success(answer: tuple[str, bytes]) -> None:
    assert Verdict.UNKNOWN is judged(answer)
    assert Verdict.ACCEPTED is judged(answer, asynchronous=True)


def test_a_partners_own_word_for_a_duplicate_means_delivered() -> None:
    profile = LaneProfile(duplicate_texts=frozenset({"send-it-under-a-new-id"}))

    assert Verdict.DELIVERED is judged(mdn(f"{PREFIX}processed/error: Send it under a new ID"), profile=profile)


def test_a_signed_receipt_is_found_inside_its_envelope() -> None:
    inner_type, inner = mdn(content_type='multipart/report; report-type=disposition-notification; boundary="b"')
    body = f"--s\r\nContent-Type: {inner_type}\r\n\r\n".encode() + inner
    body += b"\r\n--s\r\nContent-Type: application/pkcs7-signature\r\n\r\nxx\r\n--s--\r\n"

    read = parse_mdn('multipart/signed; boundary="s"', body)

    assert read is not None
    assert ("m1@test", Disposition("processed")) == (read.original_message_id, read.disposition)


def test_mics_are_compared_without_white_space_case_and_hyphens() -> None:
    assert same_mic("AbC=, sha256", "AbC=,SHA-256")
    assert not same_mic("AbC=, sha256", "abc=, sha256")
    assert not same_mic("AbC=, sha256", "AbC=, sha1")


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 507, 599])
def test_statuses_of_a_sick_partner_are_failures(status: int) -> None:
    assert Verdict.NOT_DELIVERED is judge_status(status, LaneProfile()).verdict


@pytest.mark.parametrize("status", [301, 302, 400, 401, 403, 404, 405, 407, 410, 411, 413, 415, 422, 501, 505])
def test_statuses_of_a_wrong_configuration_are_refusals(status: int) -> None:
    assert Verdict.REFUSED is judge_status(status, LaneProfile()).verdict


def test_a_partner_may_use_statuses_in_its_own_way() -> None:
    profile = LaneProfile(retry_statuses=frozenset({404}), refuse_statuses=frozenset({500, 200}))

    verdicts = [judge_status(status, profile).verdict for status in (404, 500, 200)]

    assert [Verdict.NOT_DELIVERED, Verdict.REFUSED, Verdict.REFUSED] == verdicts


def test_exceptions_are_judged_by_what_had_left_the_house() -> None:
    import http.client
    import socket
    import ssl
    import urllib.error

    wrapped = urllib.error.URLError(ConnectionRefusedError())

    assert Verdict.NOT_DELIVERED is judge_exception(ConnectionRefusedError(), body_begun=True).verdict
    assert Verdict.NOT_DELIVERED is judge_exception(socket.gaierror(), body_begun=True).verdict
    assert Verdict.NOT_DELIVERED is judge_exception(wrapped, body_begun=True).verdict
    assert Verdict.NOT_DELIVERED is judge_exception(ConnectionResetError(), body_begun=False).verdict
    assert Verdict.UNKNOWN is judge_exception(ConnectionResetError(), body_begun=True).verdict
    assert Verdict.UNKNOWN is judge_exception(TimeoutError(), body_begun=True).verdict
    assert Verdict.UNKNOWN is judge_exception(http.client.IncompleteRead(b""), body_begun=True).verdict
    assert Verdict.LANE_MISCONFIGURED is judge_exception(ssl.SSLCertVerificationError(), body_begun=False).verdict
    assert Verdict.INTERRUPTED is judge_exception(KeyboardInterrupt(), body_begun=True).verdict
    assert Verdict.NOT_SENT is judge_exception(KeyboardInterrupt(), body_begun=False).verdict
    assert Verdict.SENDER_FAILED is judge_exception(ValueError("bug"), body_begun=True).verdict
