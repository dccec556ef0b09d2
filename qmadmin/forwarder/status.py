"""tmqforward --status: the processes that forward queues of a queue space, with the statistics that they record."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from qmadmin.console.formats import Format, write_document
from qmadmin.console.process import Exit
from qmadmin.console.render import OutputLostError, Screen, format_for, screen_for
from qmadmin.console.results import Notice, Record, hidden
from qmadmin.forwarder import StartError
from qmadmin.monitoring import forwarding
from qmadmin.opening import open_device
from qmcore.errors import QueueError

if TYPE_CHECKING:
    from qmadmin.monitoring.forwarding import Told
    from qmadmin.settings import ShellSettings


class Status:
    """How queues are forwarded. `queues` are the requested ones; without any, all that a process forwards."""

    def __init__(self, space: str, told: Sequence[Told], queues: Sequence[str]) -> None:
        self._space = space
        by_queue = forwarding.by_queue(told)
        self._told = {name: by_queue.get(name, []) for name in queues or by_queue}
        self._named = bool(queues)

    @classmethod
    def read(cls, device: str, space: str, queues: Sequence[str]) -> Status:
        """Read it from a device, without attaching to it; raise StartError for a missing queue or queue space."""
        try:
            with open_device(device) as opened:
                there = {queue.name for queue in opened.queues(space)}
                told = opened.forwardings(space)
        except QueueError as error:
            raise StartError(error.message, error.hint) from error
        for name in queues:
            if name not in there:
                raise StartError(f"there is no queue {name!r} in queue space {space!r}")
        return cls(space, told, queues)

    def show(self, screen: Screen, form: Format) -> Exit:
        """Show it; return NOT_FORWARDED if one of the queues is not forwarded."""
        missing = list(self._missing())
        if form is Format.JSON:
            write_document("tmqforward --status", screen.write, self._records(), missing)
        elif form is Format.CSV:
            screen.show(self._records(), form=form)
        else:
            told = [each for of_queue in self._told.values() for each in of_queue]
            if told:
                screen.show([forwarding.table(told), *forwarding.sentences(told)], form=form)
        screen.flush()
        for notice in missing:
            screen.notice(notice)
        return Exit.NOT_FORWARDED if missing else Exit.OK

    def _records(self) -> Iterator[Record]:
        for name, told in self._told.items():
            yield Record(name, (hidden(queue=name, forwarders=forwarding.data(told)),))

    def _missing(self) -> Iterator[Notice]:
        living = {name for name, told in self._told.items() if any(process.alive for process, _ in told)}
        for name in self._told:
            if name not in living:
                yield Notice.error(f"no process forwards queue {name!r}")
        if not self._told:
            yield Notice.error(f"no process forwards a queue of queue space {self._space!r}")


def show(
    status: Status, form: str, out: TextIO, err: TextIO, environ: Mapping[str, str], settings: ShellSettings
) -> Exit:
    """Write it in a format by its name; `auto` is a table at a terminal, and plain otherwise."""
    try:
        return status.show(screen_for(out, err, environ, settings), format_for(out, form))
    except OutputLostError as error:
        # The reader may have closed the pipe; Python must not complain at exit that it cannot flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        if not error.quiet:
            raise StartError(str(error)) from error
        return Exit.FAILED
