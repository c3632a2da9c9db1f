"""What a hostile caller, partner or machine found in the retry queue."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from halfopen.cli import main
from halfopen.retry_queue import (
    Delivery,
    LaneProfile,
    MessageState,
    PayloadTooLargeError,
    Report,
    RetryQueue,
    Selection,
    Store,
    StoreUnavailableError,
    Verdict,
)
from halfopen.retry_queue.as2 import Disposition, judge_answer, parse_disposition
from halfopen.testing import FakeClock
from tests.retry_queue.support import DELIVERED, LOST, Partner, hub
from tests.retry_queue.test_running import until

S = MessageState
ACCEPTED = Report(Verdict.ACCEPTED)
REPORT = 'multipart/report; report-type=disposition-notification; boundary="b1"'
SIGNED = 'multipart/signed; micalg=sha-256; protocol="application/pkcs7-signature"; boundary="b0"'


def mdn(disposition: str) -> bytes:
    return (
        "--b1\r\nContent-Type: text/plain\r\n\r\nhello\r\n"
        "--b1\r\nContent-Type: message/disposition-notification\r\n\r\n"
        "Original-Message-ID: <m1@test>\r\n"
        f"Disposition: automatic-action/MDN-sent-automatically; {disposition}\r\n"
        "Received-Content-MIC: abc=, sha256\r\n\r\n--b1--\r\n"
    ).encode()


def signed(disposition: str) -> bytes:
    return (
        b"--b0\r\nContent-Type: " + REPORT.encode() + b"\r\n\r\n" + mdn(disposition) + b"\r\n--b0\r\n"
        b"Content-Type: application/pkcs7-signature\r\n\r\nMIIB\r\n--b0--\r\n"
    )


def judged(content_type: str, body: bytes) -> Report:
    return judge_answer(
        status=200,
        content_type=content_type,
        body=body,
        message_id="<m1@test>",
        profile=LaneProfile(),
        mic="abc=, sha256",
    )


@pytest.mark.parametrize("disposition", ["processed", "processed/error: decryption-failed"])
@pytest.mark.parametrize(("content_type", "make"), [(REPORT, mdn), (SIGNED, signed)])
def test_a_receipt_that_was_cut_off_anywhere_is_no_receipt(content_type: str, make: Any, disposition: str) -> None:
    whole = make(disposition)
    end = len(whole.rstrip())

    verdicts = {judged(content_type, whole[:length]).verdict for length in range(end)}

    assert {Verdict.UNKNOWN} == verdicts
    expected = Verdict.DELIVERED if disposition == "processed" else Verdict.REFUSED
    assert expected == judged(content_type, whole).verdict == judged(content_type, whole[:end]).verdict


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("automatic-action/MDN-sent-automatically; processed;", Disposition("processed")),
        ("manual-action/MDN-sent-manually; processed/error: a; b", Disposition("processed", "error", "a;-b")),
        (
            "processed/error: decryption-failed; see log",
            Disposition("processed", "error", "decryption-failed;-see-log"),
        ),
    ],
)
def test_a_semicolon_in_a_text_hides_no_verdict(value: str, expected: Disposition) -> None:
    assert expected == parse_disposition(value)


def test_an_empty_message_id_is_none(store: Store, clock: FakeClock) -> None:
    queue = hub(store, clock)

    accepted = queue.enqueue("acme", b"x", headers={"Message-ID": " ", "AS2-To": "ACME"})

    assert [("AS2-To", "ACME"), ("Message-ID", accepted.message_id)] == queue.headers(accepted.message_id)


def test_a_message_has_one_identity(store: Store, clock: FakeClock) -> None:
    queue = hub(store, clock)

    with pytest.raises(ValueError, match="more than one Message-ID"):
        queue.enqueue("acme", b"x", headers=[("Message-ID", "<a>"), ("message-id", "<b>")])


@pytest.mark.parametrize("headers", [{"": "x"}, {"a: b": "x"}, {"a b": "x"}, {"a": "\ud800"}])
def test_a_header_that_no_client_can_send_is_refused_at_enqueue(
    store: Store, clock: FakeClock, headers: dict[str, str]
) -> None:
    queue = hub(store, clock)

    with pytest.raises(ValueError, match="header"):
        queue.enqueue("acme", b"x", headers=headers)

    assert 0 == queue.count(Selection())


@pytest.mark.parametrize("make", [bytes, io.BytesIO])
def test_the_size_limit_counts_for_small_bodies_too(store: Store, clock: FakeClock, make: Any) -> None:
    queue = hub(store, clock, max_size=10)

    with pytest.raises(PayloadTooLargeError):
        queue.enqueue("acme", make(b"x" * 11))


def test_resubmitting_in_bulk_takes_nothing_that_came_of_it(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, partner = hub(store, clock), Partner()
    queue.lane("acme", sender=partner)
    for number in range(3):
        queue.enqueue("acme", b"x", message_id=f"m{number}")
    queue.tick()
    resubmit = store.resubmit

    def at_once(*args: Any, **options: Any) -> Any:
        assert len(partner.seen) < 20, "the copies are copied without end"
        accepted = resubmit(*args, **options)
        queue.tick()  # delivered before the next page is read
        return accepted

    monkeypatch.setattr(store, "resubmit", at_once)

    done = queue.bulk("resubmit", Selection(lane="acme"), expected=3, confirm=True)

    assert (3, 6) == (done, len(partner.seen))


@pytest.mark.parametrize(("reason", "found"), [("50%", 1), ("%", 1), ("5_%", 0), ("!", 0), ("http", 2)])
def test_a_reason_is_a_text_and_no_pattern(store: Store, clock: FakeClock, reason: str, found: int) -> None:
    reports = [Report(Verdict.REFUSED, "HTTP 400: 50% over"), Report(Verdict.REFUSED, "HTTP 400: 500 over")]
    queue = hub(store, clock)
    queue.lane("acme", sender=Partner(reports))
    for number in range(2):
        queue.enqueue("acme", b"x", message_id=f"m{number}")

    queue.tick()

    assert found == queue.count(Selection(reason=reason))


def test_where_no_thread_can_be_started_nothing_is_lost_and_sending_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, failed = threading.Thread.start, threading.Event()

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("halfopen-send") and not failed.is_set():
            failed.set()
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    sent = threading.Event()

    def send(delivery: Delivery) -> Report:
        sent.set()
        return DELIVERED

    with RetryQueue(tmp_path / "queue.db") as queue:
        queue.lane("acme", sender=send)
        queue.start()
        first = queue.enqueue("acme", b"x").message_id
        assert failed.wait(60)
        until(lambda: queue.get(first).last_outcome == "ignored")
        assert (S.WAITING, 0) == (queue.get(first).state, queue.get(first).attempts)

        queue.retry(first)

        assert sent.wait(60)
        until(lambda: queue.get(first).state is S.DONE)
        assert 1 == queue.get(first).attempts


def test_headers_that_cannot_be_read_any_more_are_a_persons_case(store: Store, clock: FakeClock) -> None:
    queue, partner = hub(store, clock), Partner()
    queue.lane("acme", sender=partner)
    queue.enqueue("acme", b"x", message_id="m1")
    store.submit(lambda transaction: transaction.execute("UPDATE payloads SET headers = '{'")).result()

    queue.tick()

    assert ([], S.ERROR, 0) == (partner.seen, queue.get("m1").state, queue.get("m1").attempts)


def early(queue: RetryQueue, *then: Report) -> Callable[[Delivery], Report]:
    """Make a partner whose negative receipt comes before its first answer."""
    answers = list(then)

    def send(delivery: Delivery) -> Report:
        if len(answers) == len(then):
            queue.receipt(delivery.message_id, Report(Verdict.REFUSED, "decryption-failed", receipt=b"no"))
        return answers.pop(0)

    return send


def test_a_receipt_that_comes_before_the_answer_counts_once(store: Store, clock: FakeClock) -> None:
    queue = hub(store, clock)
    queue.lane("acme", sender=early(queue, ACCEPTED, ACCEPTED))
    queue.enqueue("acme", b"x", message_id="m1")
    queue.tick()
    first = queue.get("m1").state

    queue.retry("m1")
    queue.tick()

    assert (S.ERROR, S.AWAITING_RECEIPT) == (first, queue.get("m1").state)


def test_a_receipt_that_comes_before_a_lost_answer_settles_the_message(store: Store, clock: FakeClock) -> None:
    queue = hub(store, clock)
    queue.lane("acme", sender=early(queue, LOST))
    queue.enqueue("acme", b"x", message_id="m1")

    queue.tick()

    assert (S.ERROR, "decryption-failed") == (queue.get("m1").state, queue.get("m1").last_detail)
    assert b"no" == queue.proof("m1")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_taken_away_accepts_nothing_until_it_is_back(tmp_path: Path, replaced: bool) -> None:
    path, away = tmp_path / "queue.db", tmp_path / "away.db"
    if replaced:
        RetryQueue(tmp_path / "other.db").close()
    with RetryQueue(path) as queue:
        queue.lane("acme", sender=Partner())
        queue.enqueue("acme", b"x", message_id="m1")
        path.rename(away)
        if replaced:
            (tmp_path / "other.db").rename(path)

        with pytest.raises(StoreUnavailableError, match="removed or replaced"):
            queue.enqueue("acme", b"x", message_id="m2")
        assert 0 == queue.tick()
        with pytest.raises(StoreUnavailableError, match="removed or replaced"):
            queue.get("m1")
        assert replaced is path.exists()

        away.rename(path)
        assert 1 == queue.tick()
        assert S.DONE is queue.get("m1").state


# The command line


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "queue.db"
    with RetryQueue(path) as queue:
        queue.enqueue("acme", b"x", message_id="m1", deadline=timedelta.max)
        queue.enqueue("acme", b"x", message_id="m2", deadline=1e300)
    return path


def command(db: Path, *arguments: str) -> Any:
    return CliRunner().invoke(main, ["queue", "--db", str(db), *arguments])


def test_a_deadline_beyond_the_calendar_is_shown(db: Path) -> None:
    for identity in ("m1", "m2"):
        result = command(db, "show", identity)

        assert 0 == result.exit_code
        assert "deadline         never\n" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--after", "9" * 30),
        ("list", "--limit", "9" * 30),
        ("retry", "m1", "--deadline", "nan"),
        ("hold", "acme", "--for", "inf"),
    ],
)
def test_a_number_that_is_none_is_bad_input(db: Path, arguments: tuple[str, ...]) -> None:
    result = command(db, *arguments)

    assert 2 == result.exit_code
    assert not isinstance(result.exception, (ValueError, OverflowError))
    assert result.stderr


def test_what_was_done_before_a_refusal_is_told(db: Path) -> None:
    result = command(db, "cancel", "m1", "unknown", "m2")

    assert (2, "cancel: m1\n") == (result.exit_code, result.stdout)
    assert "unknown" in result.stderr
