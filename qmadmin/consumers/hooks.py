"""Hooks around the calls of handlers: for error trackers, structured logs, sessions of databases."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from qmadmin.consumers import PUT_OFF, Call, Failure, Handler, Reply, Unavailable, Wording
from qmadmin.consumers.function_handler import raise_failure_of
from qmcore.errors import QueueError
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmcore.message import Message

FailureHook: TypeAlias = "Callable[[Message, BaseException], object]"
"""Called with a message whose call has failed, and the exception."""

CallHook: TypeAlias = "Callable[[Message], contextlib.AbstractContextManager[object]]"
"""Called with a message before its handler is; the call is made within the context manager that it returns."""

WorkerHook: TypeAlias = "Callable[[], object]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What is called on failures, around each call, and at the start and the end of a consumer."""

    failure: tuple[FailureHook, ...] = ()
    call: tuple[CallHook, ...] = ()
    start: tuple[WorkerHook, ...] = ()
    end: tuple[WorkerHook, ...] = ()


class HookedHandler(Handler):
    """Calls another handler, and the hooks of its consumer. What a hook around the call raises is a failure of it."""

    def __init__(self, handler: Handler, hooks: Hooks, wording: Wording) -> None:
        self._handler = handler
        self._hooks = hooks
        self._wording = wording

    def ready(self) -> None:
        """Raise Unavailable if the handler cannot work at present."""
        self._handler.ready()

    def call(self, call: Call) -> Reply | None:
        """Call the handler within the hooks."""
        try:
            return self._within(call)
        except Failure as failure:
            for hook in self._hooks.failure:
                self._tell(hook, call, failure)
            raise

    def _within(self, call: Call) -> Reply | None:
        try:
            with contextlib.ExitStack() as stack:
                for hook in self._hooks.call:
                    stack.enter_context(hook(call.request))
                return self._handler.call(call)
        except (Failure, Unavailable, QueueError, *PUT_OFF):
            raise
        except BaseException as error:  # noqa: BLE001 - it raises
            raise_failure_of(error)
        # A hook has swallowed how the call failed.
        raise Failure("a hook around the call has suppressed its failure")

    def _tell(self, hook: FailureHook, call: Call, failure: Failure) -> None:
        # What the function raised, with its traceback.
        error = failure.__cause__ or failure
        try:
            hook(call.request, error)
        except Exception:
            self._wording.logger.exception("a hook on failure failed, on message %s", call.request.msgid)

    def stop_calls(self) -> None:
        """End at once what runs outside this process."""
        self._handler.stop_calls()

    def close(self) -> None:
        """Release the handler."""
        self._handler.close()
