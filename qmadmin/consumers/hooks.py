"""Hooks around the calls of handlers: for error trackers, structured logs, sessions of databases."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from qmadmin.consumers import Call, Failure, Handler, Reply, Wording
from qmadmin.consumers.deadlines import Deadlines
from qmadmin.consumers.function_handler import raise_failure_of
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmcore.message import Message

T = TypeVar("T")

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
        self._deadlines = Deadlines("qmadmin-hook-deadlines")

    def ready(self) -> None:
        """Raise Unavailable if the handler cannot work at present."""
        self._handler.ready()

    def call(self, call: Call) -> Reply | None:
        """Call the handler within the hooks, all in the time of the call."""
        if not self._hooks.call:
            return self._handler.call(call)
        told: BaseException | None = None
        try:
            with _HooksAround(call, self._deadlines) as around:
                around.enter(self._hooks.call)
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

    def failed(self, request: Message, failure: Failure) -> None:
        """Call the hooks on failure; what they raise is logged."""
        # What the function raised, with its traceback.
        error = failure.__cause__ or failure
        for hook in self._hooks.failure:
            try:
                hook(request, error)
            except BaseException:
                self._wording.logger.exception("a hook on failure failed, on message %s", request.msgid)

    def stop_calls(self) -> None:
        """End at once what runs outside this process."""
        self._handler.stop_calls()

    def close(self) -> None:
        """Release the handler."""
        self._handler.close()
        self._deadlines.close()


class _HooksAround(contextlib.ExitStack):
    """The hooks around a call, which are entered and left within its time.

    When that is over they are left without a limit, as a function cleans up that was ended.
    """

    def __init__(self, call: Call, deadlines: Deadlines) -> None:
        super().__init__()
        self._call = call
        self._deadlines = deadlines

    def enter(self, hooks: Iterable[CallHook]) -> None:
        """Enter what each hook returns."""
        self._in_time(functools.partial(self._enter, hooks))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return bool(self._in_time(functools.partial(super().__exit__, kind, error, trace)))

    def _enter(self, hooks: Iterable[CallHook]) -> None:
        for hook in hooks:
            self.enter_context(hook(self._call.request))

    def _in_time(self, act: Callable[[], T]) -> T:
        has_time = 0 < self._call.left() < math.inf
        return self._deadlines.within(self._call, act) if has_time else act()
