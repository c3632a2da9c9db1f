"""The part of RetryQueue that takes receipts and orders."""

from __future__ import annotations

from typing import Any, Literal

from ._bodies import take
from ._errors import CommandRefusedError, PayloadCorruptError
from ._inspection import Selection
from ._intake import Deadline, prepare_again, unix_time
from ._reports import Report
from ._requests import Accepted
from ._rows import Message
from ._rules import check_resubmit
from ._views import Views

__all__ = ["BulkCommand", "Orders"]

BulkCommand = Literal["retry", "resend", "resubmit", "cancel"]


class Orders(Views):
    """What a queue can be told; the base of `RetryQueue`."""

    def receipt(self, message_id: str, report: Report) -> Message:
        """
        Take an async receipt: idempotent, and the first valid one wins.

        A positive one settles the message in whatever state it is; it never touches the breaker.

        Raises:
            UnknownMessageError: No such message.
            StoreUnavailableError: It could not be committed: have the partner send it again.
        """
        before = self.store.find(message_id)
        change = self.store.receipt(message_id, report).result()
        if change is not None:
            self._announce(before, change)
        return self.store.find(message_id)

    def _announce(self, message: Message, change: Any) -> None:
        lane = self._dispatcher.lanes.get(message.lane)
        if lane is not None:
            lane.results.announce(message, change)
        self._dispatcher.attention(message.lane)

    def retry(self, message_id: str, *, deadline: Deadline = None, reason: str = "", by: str | None = None) -> Message:
        """Make a message due now, with fresh tries and the same ID; a passed deadline needs a new one."""
        return self._command(message_id, "retry", deadline, reason, by)

    def resend(self, message_id: str, *, deadline: Deadline = None, reason: str = "", by: str | None = None) -> Message:
        """Send again, under the same ID, what the partner may have already."""
        return self._command(message_id, "resend", deadline, reason, by)

    def cancel(self, message_id: str, *, reason: str = "", by: str | None = None) -> Message:
        """Take a message out; `CommandRefusedError` while it is being sent."""
        return self._command(message_id, "cancel", None, reason, by)

    def _command(self, message_id: str, order: str, deadline: Deadline, reason: str, by: str | None) -> Message:
        until = unix_time(deadline, self._clock.wall())
        self.store.command(message_id, order, deadline=until, reason=reason, who=by)
        self._tally.command(order)
        message = self.store.find(message_id)
        self._dispatcher.attention(message.lane)
        return message

    def move_deadline(self, message_id: str, deadline: Deadline, *, by: str | None = None) -> Message:
        """Give a message that is on its way another deadline; None takes it away."""
        self.store.move_deadline(message_id, unix_time(deadline, self._clock.wall()), by)
        return self.store.find(message_id)

    def resubmit(
        self,
        message_id: str,
        *,
        confirm: bool = False,
        deadline: Deadline = None,
        reason: str = "",
        by: str | None = None,
    ) -> Accepted:
        """
        Send the content again as a new message with a new ID.

        Raises:
            ConfirmationRequiredError: The partner may have it already; pass ``confirm=True``.
            PayloadCorruptError: The stored bytes are gone.
        """
        old = self.store.find(message_id)
        check_resubmit(old, confirmed=confirm)
        headers, _, _, mic, _ = self.store.payload(old.seq)
        with self.open(message_id) as stream:
            body = take(stream, self.store.inline, self._max_size, self.store.bodies)
        if body.digest != old.digest:
            raise PayloadCorruptError(f"the stored bytes of {message_id} are not those that were enqueued")
        new = prepare_again(self.store, old, list(headers), body, mic, unix_time(deadline, self._clock.wall()))
        accepted = self.store.resubmit(new, confirmed=confirm, who=by, reason=reason)
        self._tally.command("resubmit")
        self._dispatcher.attention(old.lane)
        return accepted

    def bulk(
        self,
        command: BulkCommand,
        selection: Selection,
        *,
        expected: int,
        deadline: Deadline = None,
        confirm: bool = False,
        reason: str = "",
        by: str | None = None,
    ) -> int:
        """
        Carry out one command for every message meant; return how many it was carried out for.

        Args:
            expected: What `count` said; if it is no longer so, nothing is done.

        Raises:
            CommandRefusedError: The count has changed.
        """
        if (found := self.count(selection)) != expected:
            raise CommandRefusedError(f"{found} messages fit now, not {expected}: nothing was done")
        done, after, last = 0, 0, self.store.last(selection)
        while messages := self.store.select(selection, after=after, limit=500):
            after = messages[-1].seq
            # What is resubmitted comes behind the last one, and may fit as well.
            meant = [message for message in messages if message.seq <= last]
            done += sum(self._one(command, message, deadline, confirm, reason, by) for message in meant)
            if after >= last:
                break
        return done

    def _one(
        self, command: str, message: Message, deadline: Deadline, confirm: bool, reason: str, by: str | None
    ) -> bool:
        try:
            if command == "resubmit":
                self.resubmit(message.id, confirm=confirm, deadline=deadline, reason=reason, by=by)
            else:
                self._command(message.id, command, deadline, reason, by)
        except CommandRefusedError:
            return False
        return True
