"""Reschedule Celery tasks that meet a refusal: ``@app.task(base=ReschedulingTask)``."""

# pyright: basic
# (Celery ships no types)

from __future__ import annotations

from typing import Any

from celery import Task
from celery.exceptions import Reject, Retry

from halfopen.errors import RejectedError
from halfopen.integrations._answers import refusal_in

__all__ = ["ReschedulingTask"]


class ReschedulingTask(Task):  # type: ignore[misc]  # Celery ships no types
    """
    A task that is put back, for the next trial time, when an open circuit or another policy refuses it.

    It uses up no retry: the work was not tried. So do ``self.retry(exc=refusal)`` and *autoretry_for*. Called directly,
    or eagerly, the refusal reaches the caller.

    For every task of an application: ``Celery(task_cls="halfopen.integrations.celery:ReschedulingTask")``.

    Attributes:
        refused_countdown: Seconds to wait where nobody can know how long, as with a circuit that is forced open.
    """

    abstract = True
    refused_countdown: float = 60.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task."""
        request = self.request
        try:
            return super().__call__(*args, **kwargs)
        except (RejectedError, ExceptionGroup) as error:
            refusal = refusal_in(error)
            if refusal is None or _here(request):
                raise
            raise self._put_back(request, refusal) from error

    def retry(self, args: Any = None, kwargs: Any = None, exc: Any = None, throw: bool = True, **options: Any) -> Any:
        """Retry the task; after a refusal, at the next trial time and without using up a retry."""
        refusal = None if exc is None else refusal_in(exc)
        if refusal is None or _here(self.request):
            return super().retry(args, kwargs, exc, throw, **options)
        told = self._put_back(self.request, refusal, args, kwargs)
        if throw:
            raise told
        return told

    def _put_back(self, request: Any, refusal: RejectedError, args: Any = None, kwargs: Any = None) -> Retry:
        seconds = self.refused_countdown if refusal.retry_after is None else refusal.retry_after
        again: Any = self.signature_from_request(request, args, kwargs, countdown=seconds, retries=request.retries)
        try:
            again.apply_async()
        except Exception as error:
            raise Reject(error, requeue=False) from error  # as Task.retry does when the broker is gone
        return Retry(exc=refusal, when=seconds, sig=again)


def _here(request: Any) -> bool:
    return bool(request.called_directly or request.is_eager)
