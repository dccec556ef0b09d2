"""A handler that is a function in Python, called in the thread that calls the handler, or a coroutine function.

The calls of all coroutine functions run concurrently in one event loop, in a thread of its own while there is one of
them. A consumer has it ready before it knows whether any is a coroutine function, so that asyncio is loaded with the
first.
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
import operator
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from qmadmin.bodies import encode
from qmadmin.consumers import (
    PUT_OFF,
    Call,
    Failure,
    Handler,
    Park,
    Reply,
    Snooze,
    Unavailable,
    Wording,
    shortened,
    too_late,
)
from qmadmin.consumers.deadlines import Deadlines
from qmadmin.consumers.decoding import is_coroutine_function
from qmadmin.settings import SECONDS_MAX
from qmcore import names
from qmcore.checks import buffer_of, flag_of, index_of, number_of
from qmcore.errors import InvalidArgumentError
from qmcore.message import Message

if TYPE_CHECKING:
    import asyncio

    from qmcore.message import Message


Outcome: TypeAlias = Failure | Unavailable | Snooze | Park
"""What a function raises to say how the call has ended."""


def handler_of(function: Callable[[Message], object], loop: EventLoop) -> Handler:
    """Return a handler that calls a function; a coroutine function runs in the event loop."""
    if not is_coroutine_function(function):
        return FunctionHandler(function)
    return CoroutineHandler(function, loop)


class FunctionHandler(Handler):
    """Calls `function` with the message.

    It returns the reply's body, as it could be enqueued, a `Reply`, or None for a reply of zero length. Whatever it
    raises is a failure, even if it would end the process.
    """

    def __init__(self, function: Callable[[Message], object]) -> None:
        self.function = function
        self._deadlines = Deadlines("qmadmin-deadlines")

    def call(self, call: Call) -> Reply:
        """Work on a message."""
        pid = os.getpid()
        try:
            answer = self.function(call.request) if call.seconds == math.inf else self._within(call)
        except BaseException as error:  # noqa: BLE001 - it raises
            if os.getpid() != pid:
                end_forked(error)
            raise_failure_of(error)
        if os.getpid() != pid:
            end_forked(None)
        return reply_of(answer)

    def close(self) -> None:
        """End the thread that watches the calls."""
        self._deadlines.close()

    def _within(self, call: Call) -> object:
        return self._deadlines.within(call, functools.partial(self.function, call.request))


def end_forked(error: BaseException | None) -> NoReturn:
    """End this process, which a function has forked, and which has returned from its call or raised an error there.

    It is a copy of the consumer, whose transaction, connections and threads belong to another process.
    """
    if isinstance(error, SystemExit):
        status = index_of(error.code) if error.code else 0
    else:
        logging.getLogger("qmadmin.consumers").error(
            "a process that a handler has forked %s, and is ended", "failed" if error else "returned from the call"
        )
        status = None if error else 0
    os._exit(1 if status is None else status & 0xFF)


def reply_of(answer: object) -> Reply:
    """Return the reply that a function returned, its body encoded; raise Failure if it is not one."""
    try:
        reply = _encoded(answer if isinstance(answer, Reply) else Reply(answer))  # type: ignore[arg-type]
    except InvalidArgumentError as error:
        if inspect.iscoroutine(answer):
            answer.close()
            raise Failure(
                "its answer is a coroutine, which was not awaited: the handler must be an async function itself"
            ) from None
        raising = "; it is to be raised" if isinstance(answer, (Failure, Unavailable, *PUT_OFF)) else ""
        raise Failure(f"its answer cannot be encoded: {error.message}{raising}") from error
    if fault := _fault_of_reply(reply):
        raise Failure(fault)
    return _plain(reply)


def _encoded(reply: Reply) -> Reply:
    """Return a reply with a body of bytes or str, which is JSON where it was a value of JSON or a model."""
    if _is_body(reply.body):
        return reply
    body, kind = encode(reply.body)
    return Reply(body, reply.urcode, kind if reply.type is None else reply.type, reply.headers)


def failure_of(error: BaseException) -> Outcome:
    """Return what an exception of a function means: itself, if it is valid and one of those that have a meaning."""
    if not isinstance(error, (Failure, Unavailable, *PUT_OFF)):
        return Failure(described(error))
    if fault := _fault_of_failure(error):
        return Failure(f"{described(error)}; {fault}")
    return error


def raise_failure_of(error: BaseException) -> NoReturn:
    """Raise what an exception of a function means, with the exception as its cause if that is another one."""
    failure = failure_of(error)
    try:
        raise failure from (error.__cause__ if failure is error else error)
    finally:
        # An exception refers to this frame; a reference back would keep its objects until the garbage collector runs.
        del failure, error


def described(error: BaseException) -> str:
    """Return the kind and the text of an exception."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - an exception that cannot be shown is still one
        text = ""
    return names.storable(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _fault_of_reply(reply: Reply) -> str:
    """Return why a reply cannot be used, if its fields do not have the declared types."""
    body: object = reply.body
    urcode: object = reply.urcode
    kind: object = reply.type
    headers: object = reply.headers
    if not _is_body(body):
        return f"its body is {type(body).__name__}, not bytes, str or None"
    if isinstance(body, str) and not _has_utf8(body):
        return "its body has no UTF-8 form"
    if index_of(urcode) is None:
        return f"its user return code is {type(urcode).__name__}, and not int"
    if not isinstance(kind, (str, type(None))):
        return f"its type is {type(kind).__name__}, and not str"
    if not isinstance(headers, (Mapping, type(None))):
        return f"its headers are {type(headers).__name__}, not a mapping of names to values"
    return ""


def _fault_of_failure(error: Outcome) -> str:
    try:
        text, retry_after = str(error), None if isinstance(error, Park) else error.retry_after
        fault = ""
        if isinstance(error, Failure):
            error.reply = _encoded(error.reply)
            fault = _fault_of_reply(error.reply)
        seconds = None if flag_of(retry_after) is not None else number_of(retry_after)
        if not fault:
            _make_plain(error, seconds)
    except InvalidArgumentError as wrong:
        return f"its answer cannot be encoded: {wrong.message}"
    except BaseException as wrong:  # noqa: BLE001 - a class of the application may have made anything of it
        return f"it cannot be read: {described(wrong)}"
    if fault:
        return fault
    if not _has_utf8(text) or "\0" in text:
        return "its reason cannot be recorded as it is"
    is_needed = retry_after is not None or isinstance(error, Snooze)
    if is_needed and not (seconds is not None and 0 <= seconds <= SECONDS_MAX):
        what = "time" if isinstance(error, Snooze) else "retry_after"
        return f"its {what} must be seconds from 0 to {SECONDS_MAX}, got {shortened(repr(retry_after))}"
    return ""


def _is_body(value: object) -> bool:
    return value is None or isinstance(value, (bytes, str)) or buffer_of(value) is not None


def _plain(reply: Reply) -> Reply:
    """Return a reply whose body is bytes if it is a buffer, and whose return code is an int."""
    body, urcode = reply.body, reply.urcode
    if not (body is None or isinstance(body, (bytes, str))):
        body = bytes(buffer_of(body) or b"")
    elif isinstance(urcode, int):
        return reply
    return Reply(body, operator.index(urcode), reply.type, reply.headers)


def _make_plain(error: Outcome, seconds: float | None) -> None:
    if isinstance(error, Failure):
        error.reply, error.permanent = _plain(error.reply), bool(error.permanent)
    if seconds is not None and not isinstance(error, Park):
        error.retry_after = seconds


def _has_utf8(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


_GRACE_SECONDS: Final = 0.5
"""How many seconds to wait for a coroutine that was cancelled."""


class CoroutineHandler(Handler):
    """Calls a coroutine function with the message, in the event loop, and waits for its result.

    What it returns and raises means the same as with any function. It is cancelled when its time is over.
    """

    def __init__(self, function: Callable[[Message], Any], loop: EventLoop) -> None:
        self._function = function
        self._shared = loop
        self._loop = loop.enter()

    def call(self, call: Call) -> Reply:
        """Work on a message."""
        coroutine = _CoroutineCall(self._function, call.request)
        self._loop.call_soon_threadsafe(coroutine.begin)
        left = call.left()
        if not coroutine.ended.wait(None if left == math.inf else max(left, 0.0)):
            self._loop.call_soon_threadsafe(coroutine.cancel)
            coroutine.ended.wait(_GRACE_SECONDS)
            raise Failure(too_late(call))
        return coroutine.reply()

    def close(self) -> None:
        """Release the event loop."""
        self._shared.leave()


class _CoroutineCall:
    """A call of a coroutine function: `ended` is set when it has finished."""

    def __init__(self, function: Callable[[Message], Any], request: Message) -> None:
        self.ended = threading.Event()
        self._function = function
        self._request = request
        self._task: asyncio.Task[None] | None = None
        self._answer: object = None
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Begin, in the thread of the loop and the context of the caller."""
        import asyncio

        self._task = asyncio.get_running_loop().create_task(self._awaited())

    def cancel(self) -> None:
        """Cancel it, in the thread of the loop."""
        if self._task is not None:
            self._task.cancel()

    def reply(self) -> Reply:
        """Return the reply, or raise how the call failed."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise_failure_of(error)
        finally:
            del error
        return reply_of(self._answer)

    async def _awaited(self) -> None:
        pid = os.getpid()
        try:
            self._answer = await self._function(self._request)
        except BaseException as error:  # noqa: BLE001 - it is an error of the call, and not of the loop
            self._error = error
        finally:
            if os.getpid() != pid:
                end_forked(self._error)
            self.ended.set()


# ---- the event loop --------------------------------------------------------------------------------------------------


_END_SECONDS: Final = 5.0
"""How long the end of the event loop waits for its tasks and threads; calls had their time before."""


class EventLoop:
    """An event loop for several handlers: it runs from the first `enter` to the last `leave`."""

    def __init__(self, wording: Wording) -> None:
        self._wording = wording
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def enter(self) -> asyncio.AbstractEventLoop:
        """Return the running loop."""
        import asyncio

        with self._lock:
            self._users += 1
            if self._loop is None:
                self._loop, self._over = asyncio.new_event_loop(), threading.Event()
                known = self._loop, self._over, self._wording
                self._thread = threading.Thread(target=_keep_loop, args=known, name="qmadmin-event-loop", daemon=True)
                self._thread.start()
            return self._loop

    def leave(self) -> None:
        """Release the loop; the last user ends it, and what still runs in it is cancelled.

        A task that blocks the loop, or a thread of it, is left behind: nothing can end it.
        """
        with self._lock:
            self._users -= 1
            if self._users or self._loop is None or self._thread is None:
                return
            self._loop.call_soon_threadsafe(_cancel_and_stop, self._loop, self._over)
            self._thread.join(_END_SECONDS)
            if self._thread.is_alive():
                self._wording.logger.error("a %s blocks the event loop, and is left behind", self._wording.handler)
            self._loop = self._thread = None


def _keep_loop(loop: asyncio.AbstractEventLoop, over: threading.Event, wording: Wording) -> None:
    """Run the loop until it is over, whatever handlers do to it."""
    import asyncio

    asyncio.set_event_loop(loop)
    try:
        while not over.is_set():
            try:
                loop.run_forever()
            except BaseException:
                # A task of a handler raised an exception to end the process.
                wording.logger.exception("a task of a %s ended the event loop, which goes on", wording.handler)
            else:
                if not over.is_set():
                    wording.logger.error("a %s stopped the event loop, which goes on", wording.handler)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def _cancel_and_stop(loop: asyncio.AbstractEventLoop, over: threading.Event) -> None:
    import asyncio

    def stop() -> None:
        over.set()
        loop.stop()

    for task in asyncio.all_tasks(loop):
        task.cancel()
    # After the tasks were cancelled.
    loop.call_soon(stop)
