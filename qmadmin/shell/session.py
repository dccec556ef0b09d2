"""A session of the shell: its device, the open queue space, modes and criteria, and its input and output."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qmadmin.configuration import Configuration
from qmadmin.console import escaped
from qmadmin.console.formats import Format
from qmadmin.console.process import Exit
from qmadmin.console.results import Column, Notice, Result, Shown, Table
from qmadmin.shell import lines
from qmadmin.shell.notices import UsageError
from qmcore.errors import BadQueueError, BadResourceError, QueueError
from qmcore.redacted import redacted
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmadmin.console.render import Screen
    from qmadmin.device import Device
    from qmadmin.settings import ShellSettings
    from qmadmin.shell.catalogue import Catalogue
    from qmadmin.shell.lines import Dialogue
    from qmadmin.shell.live import CounterSnapshot
    from qmadmin.space import QueueSpace
    from qmadmin.transfer.comparing import Verified
    from qmcore.condition import Condition
    from qmcore.message import MessageInfo
    from qmcore.queue import Delivery


@dataclass(frozen=True, slots=True)
class Range:
    """The values from `low` to `high`, both among them, and how they were written."""

    low: int
    high: int
    text: str


@dataclass(frozen=True, slots=True)
class Criteria:
    """The criteria of selected messages; None is no criterion. Times are microseconds since 1970, UTC."""

    available: Range | None = None
    priority: Range | None = None
    msgid: str | None = None
    corrid: bytes | None = None
    delivery: Delivery | None = None
    expires: Range | None = None
    condition: Condition | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) is not None for field in dataclasses.fields(self))

    def __str__(self) -> str:
        return " ".join(f"{flag} {lines.quote(text)}" for flag, text in self.options())

    def options(self) -> Iterator[tuple[str, str]]:
        """Yield the options of qscan that set these criteria."""
        for flag, asked in (("-t", self.available), ("-p", self.priority)):
            if asked is not None:
                yield flag, asked.text
        if self.msgid is not None:
            yield "-m", self.msgid
        if self.corrid is not None:
            yield "-i", escaped(self.corrid)
        if self.delivery is not None:
            yield "-d", self.delivery.value
        if self.expires is not None:
            yield "-e", self.expires.text
        if self.condition is not None:
            yield "-w", str(self.condition)

    @property
    def whole(self) -> Condition | None:
        """All criteria except the delivery as a condition."""
        from qmcore.condition import BY_NAME, Between, Operator, all_of, available, compared

        parts: list[Condition] = []
        if self.available is not None:
            parts.append(available(Operator.AT_LEAST, self.available.low))
            parts.append(available(Operator.AT_MOST, self.available.high))
        for name, asked in (("priority", self.priority), ("expires_at", self.expires)):
            if asked is not None:
                parts.append(Between(BY_NAME[name], asked.low, asked.high))
        for name, equal in (("msgid", self.msgid), ("corrid", self.corrid)):
            if equal is not None:
                parts.append(compared(name, Operator.EQUAL, equal))
        if self.condition is not None:
            parts.append(self.condition)
        return all_of(parts)

    def has_delivery_of(self, message: MessageInfo) -> bool:
        """Return whether a message has the selected delivery."""
        return self.delivery in (None, message.delivery)


@dataclasses.dataclass(slots=True)
class Modes:
    """The modes that echo, verbose, paginate and format switch.

    `format` is the one of the results, `yes` answers every confirmation, `stop_on_error` ends a script at its first
    error.
    """

    echo: bool = False
    verbose: bool = False
    paginate: bool = False
    format: Format = Format.PLAIN
    yes: bool = False
    stop_on_error: bool = False


class Session:
    """Everything that commands share.

    `path` is the device as QMCONFIG or the argument names it, without passwords; nothing is opened before a command
    needs it. `previous`
    is the command line that an empty line repeats, `previous_shell` the shell command that `!!` repeats,
    `snapshots` the counters that qstat compares with, by queue space. `at_terminal` says whether a person types at a
    terminal, `shown_at_terminal` whether results come there too, `can_page` whether long output can go through a pager,
    `children_read` whether a shell command may read the standard input, which it may not when that is the script.
    `space` is the name of the queue space that is opened when it is needed, unless another was opened before, or one
    closed.
    """

    def __init__(
        self,
        path: str,
        catalogue: Catalogue,
        screen: Screen,
        environ: Mapping[str, str],
        *,
        modes: Modes | None = None,
        settings: ShellSettings | None = None,
        at_terminal: bool = False,
        shown_at_terminal: bool = False,
        can_page: bool = False,
        children_read: bool = False,
        space: str = "",
    ) -> None:
        self._place = path
        self.path: str = path if "://" not in path else _shown(path)
        self.catalogue = catalogue
        self.screen = screen
        self.output = screen
        """The target of results: the screen, unless they are redirected. Prompts and echo go to the screen."""
        self.is_elsewhere = False
        """Whether the user does not see them there."""
        self.environ = environ
        self.at_terminal = at_terminal
        self._shown_at_terminal = shown_at_terminal
        self.can_page = can_page
        self.children_read = children_read
        self.modes = modes or Modes()
        self.settings = settings or Configuration("", {}, environ).qmadmin
        self.space: QueueSpace | None = None
        self._usual_space = space
        self.queue: str | None = None
        self.criteria = Criteria()
        self.transactions: tuple[str, ...] = ()
        """The transactions of the last listing, by their indexes."""
        self.remarks: list[Notice] = []
        self.told: set[str] = set()
        """The warnings given to a user at a terminal since the queue space was opened."""
        self.draw: Callable[[Sequence[Result]], None] = screen.show
        """Shows results before the command has ended, in the format of the session."""
        self.snapshots: dict[str, CounterSnapshot] = {}
        self.named: Dialogue | None = None
        """The command file whose commands are next."""
        self.verified: Verified | None = None
        """The result of a verification by a confirmation, kept for the command."""
        self.previous = ""
        self.previous_shell = ""
        self.finished = False
        self.status = Exit.OK
        self.lacks = False
        """Whether a result was not whole."""
        self._device: Device | None = None
        # Completion reads the device in a thread of its own.
        self._opening = threading.RLock()

    @property
    def device(self) -> Device:
        """The device, opened when it is first asked for; QMEBADRMID if there is none."""
        with self._opening:
            if self._device is None:
                from qmadmin.opening import open_to_administer

                self._device = open_to_administer(self._place)
                if self._device.readonly:
                    self.remarks.append(Notice.warning(f"device {self.path!r} {self._why_readonly()}"))
            return self._device

    def _why_readonly(self) -> str:
        from qmadmin.opening import other_owner

        owner = other_owner(self._place)
        if owner:
            return f"belongs to {owner}: it is open for reading only"
        return "is open for reading only: you may not write to it"

    @property
    def readonly(self) -> bool:
        """Whether the device is open, and for reading only."""
        return self._device is not None and self._device.readonly

    @property
    def detailed(self) -> bool:
        """Whether everything about an object is shown: in verbose mode, and always to programs."""
        return self.modes.verbose or self.modes.format.is_for_programs

    @property
    def is_read_at_terminal(self) -> bool:
        """Whether a user reads the results of the present command at a terminal."""
        return self._shown_at_terminal and not self.is_elsewhere and not self.modes.format.is_for_programs

    @property
    def is_drawn(self) -> bool:
        """Whether that terminal can be drawn on."""
        return self.can_page and self.is_read_at_terminal

    def take_remarks(self) -> list[Notice]:
        """Return the notices before the next result, once."""
        remarks, self.remarks = self.remarks, []
        return remarks

    def nothing(self, told: str | Notice, columns: tuple[Column, ...]) -> list[Shown]:
        """Return the result of a command that has nothing to list: a sentence, and for programs an empty table."""
        notice = told if isinstance(told, Notice) else Notice.info(told)
        return [notice, Table(columns, ())] if self.modes.format.is_for_programs else [notice]

    def not_told(self, found: Sequence[Notice]) -> list[Notice]:
        """Return the warnings that a user at a terminal has not seen since the queue space was opened."""
        if not self.at_terminal:
            return list(found)
        new = [notice for notice in found if notice.text not in self.told]
        self.told |= {notice.text for notice in new}
        return new

    @property
    def has_device(self) -> bool:
        """Whether something exists at the path of the device that is not to be made one; a server has to be queried."""
        if self._device is not None:
            return True
        file = file_of(self._place)
        if file is None:
            return self._can_open()
        from qmadmin.opening import can_become_device

        return file.exists() and not (file.is_file() and (file.stat().st_size == 0 or can_become_device(file)))

    def _can_open(self) -> bool:
        try:
            return self.device is not None
        except BadResourceError:
            # Creating the device reports what exists in its place, if anything.
            return False

    def files(self) -> list[Path]:
        """Return the files of the device that are known without opening it."""
        own = file_of(self._place)
        if own is None:
            return []
        entries = [] if self._device is None else self._device.entries()
        return [own, *(Path(entry.path) for entry in entries)]

    def is_named(self, device: str) -> bool:
        """Return whether a name is a name of the device of this session."""
        own, other = file_of(self._place), file_of(device)
        if own is None:
            # The name of a schema is enough: there is one database.
            return device == self._schema() or (other is None and self.path == _shown(device))
        return other is not None and os.path.realpath(own) == os.path.realpath(other)

    def _schema(self) -> str:
        from qmadmin.volume_makers import address_of

        address = address_of(self._place)
        return address.schema if address is not None else ""

    def create_device(self, path: str, offset: int, pages: int, **how: Any) -> Device:
        """Create the device with its first entry; `path` is a name of it, `how` is passed to `create_device`."""
        from qmadmin.opening import create_device

        # Only the session's own name of a database says how to connect to it.
        place = self._place if file_of(self._place) is None else path
        self._device = create_device(place, pages, offset=offset, **how)
        return self._device

    def open_space(self, name: str) -> QueueSpace:
        """Open a queue space in place of the one that is open; the current queue is forgotten."""
        self.close_space()
        self.space = self.device.open_space(name, role="qmadmin")
        return self.space

    def close_space(self) -> str:
        """Close the open queue space and return its name, empty if none was open.

        The current queue and the criteria are forgotten.
        """
        space, self.space, self.queue, self.criteria = self.space, None, None, Criteria()
        self._usual_space = ""
        self.transactions = ()
        self.told.clear()
        if space is None:
            return ""
        space.close()
        return space.name

    def opened(self) -> QueueSpace:
        """Return the open queue space; UsageError if there is none."""
        usual = self._usual_space
        if self.space is None and usual:
            try:
                self.open_space(usual)
            finally:
                # Until a command opens or closes one, this is repeated: it may be created meanwhile.
                self._usual_space = usual
        if self.space is None:
            also = "" if self.at_terminal else " Or start qmadmin with -s SPACE."
            raise UsageError("No queue space is open", hint=f"Open one with qopen.{also}")
        return self.space

    def forget_queue_if_gone(self) -> None:
        """Forget the current queue, or consumer of one, where there is none of that name any more."""
        if self.queue is not None:
            try:
                self.opened().queue(self.queue)
            except BadQueueError:
                self.queue = None

    def chosen(self) -> str:
        """Return the name of the current queue; UsageError if there is none."""
        if self.queue is None:
            raise UsageError("No current queue is set", hint="Set it with qset.")
        return self.queue

    @contextlib.contextmanager
    def progress(self, what: str, total: int | None = None, *, dots: bool = True) -> Iterator[Callable[[int], None]]:
        """Show the progress of the block, which may take long.

            with session.progress("Purging queue 'ORDERS'", total=1000) as reached:
                ...
                reached(500)

        At a terminal it is a bar, from half a second on, which disappears afterwards. Elsewhere it is nothing, and
        in verbose mode a dot for each 5 %, if `total` is known and `dots` are wanted.
        """
        bar = self.output.progress(what, total)
        if bar is not None:
            with bar as reached:
                yield reached
        elif dots and total and self.modes.verbose and not self.modes.format.is_for_programs:
            yield self._dots(total)
        else:
            yield lambda _done: None

    def _dots(self, total: int) -> Callable[[int], None]:
        shown = 0

        def show(done: int) -> None:
            nonlocal shown
            new = 20 * done // total - shown
            shown += new
            self.output.tick("." * new + "\n" * (done >= total))

        return show

    def close(self) -> None:
        """Close the queue space and the device."""
        self.close_space()
        device, self._device = self._device, None
        if device is not None:
            device.close()


def file_of(device: str) -> Path | None:
    """Return the file of a device, given by its path or URL; None if it is another kind of database."""
    if "://" not in device:
        return Path(device)
    from qmadmin.volume_makers import path_of

    try:
        path = path_of(device)
    except QueueError:
        return None
    return None if "://" in path else Path(path)


def _shown(device: str) -> str:
    """Return the path or URL of a device without passwords."""
    from qmadmin.volume_makers import path_of

    try:
        path = path_of(device)
    except QueueError:
        return redacted(device)
    return path if "://" in path else device
