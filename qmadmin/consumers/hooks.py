"""Hooks around the calls of handlers: for error trackers, structured logs, sessions of databases."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from qmadmin.consumers import Call, Failure, Handler, Reply, Wording
from qmadmin.consumers.function_handler import raise_failure_of
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
        told: BaseException | None = None
        try:
            with contextlib.ExitStack() as stack:
                for hook in self._hooks.call:
                    stack.enter_context(hook(call.request))
                try:
                    return self._handler.call(call)
                except BaseException as error:
                    told = error
                    raise
        except BaseException as error:
            if error is told:
                raise
            # What a hook raises is judged as if the function had raised it.
            raise_failure_of(error)
        finally:
            # An exception refers to this frame; a reference back would keep its objects until the collector runs.
            told = None
        # A hook has swallowed how the call failed.
        raise Failure("a hook around the call has suppressed its failure")

    def _tell(self, hook: FailureHook, call: Call, failure: Failure) -> None:
        # What the function raised, with its traceback.
        error = failure.__cause__ or failure
        try:
            hook(call.request, error)
        except BaseException:
            self._wording.logger.exception("a hook on failure failed, on message %s", call.request.msgid)

    def stop_calls(self) -> None:
        """End at once what runs outside this process."""
        self._handler.stop_calls()

    def close(self) -> None:
        """Release the handler."""
        self._handler.close()
