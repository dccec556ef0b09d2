"""What a work is for: the one word that says what its store promises for it, and what the work may do for that.

A work that does what its purpose does not allow fails on each store, whatever the store could have done for it.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Promise(NamedTuple):
    """What a store promises for a work, beside that all of it is done or nothing."""

    durable: bool = False
    """When the call returns, the commit is on the disk."""
    alone: bool = False
    """Nobody else writes meanwhile: what it has read is still so when it acts on it."""
    patient: bool = False
    """Where there is one writer at a time, others go first who wait for it, though not for ever."""
    again: bool = False
    """It may be done twice: where nobody can tell whether it was committed, it is done again."""
    always: bool = False
    """It is durable on a device, too, whose commits need not be."""
    decided: bool = False
    """What it does is decided, and durable elsewhere: where a crash takes it away, it is done again."""
    unhindered: bool = False
    """It does not wait for transactions that applications have open, where others can write beside those."""
    apart: bool = False
    """Where the volume syncs apart, the call returns before the disk has it, and `Volume.sync` brings it there."""


class Purpose(enum.Enum):
    """What a work is for.

    Works that are not alone may be done at the same time, and what they have read may be outdated when they act. That
    is right for messages, each of which belongs to whoever has taken it out of its state.
    """

    MESSAGES = Promise(durable=True)
    """Messages arrive, go, or are moved, and a transaction commits."""
    PROMISE = Promise(durable=True, always=True)
    """A commit is promised, or what was promised is done: others rely on it, on other machines and disks."""
    PREPARING = Promise(durable=True, always=True, apart=True)
    """The same by several volumes: whoever asks has them sync beside each other, before it goes on."""
    COMPLETING = Promise(decided=True)
    """A branch of a distributed transaction commits that is decided, and would be committed by recovery."""
    HOLDING = Promise()
    """A process gets what it loses when it dies: messages that a transaction holds, numbers, its attachment."""
    TIDY = Promise(again=True)
    """What anybody who comes next would do as well: release, expire, roll back, take a wait back."""
    BULK = Promise(patient=True, again=True)
    """A batch of messages is loaded that nobody sees yet, one of many."""
    STAGE = Promise(durable=True, alone=True, patient=True, again=True)
    """An import goes on to its next stage, or on within it."""
    FOLLOWING = Promise(alone=True, again=True)
    """Memory does what the disk says."""
    SUBSCRIBING = Promise(durable=True, alone=True, unhindered=True)
    """A consumer subscribes or unsubscribes; what an open transaction of an application brings is seen to later."""
    ADMINISTRATION = Promise(durable=True, alone=True)
    """An administrator changes definitions, devices, or what others have left; it looks, and then acts."""

    def __init__(
        self,
        durable: bool,
        alone: bool,
        patient: bool,
        again: bool,
        always: bool,
        decided: bool,
        unhindered: bool,
        apart: bool,
    ) -> None:
        self.durable = durable
        self.alone = alone
        self.patient = patient
        self.again = again
        self.always = always
        self.unhindered = unhindered
        self.apart = apart
        self.settles = ((durable and not apart) or decided) and not again
        """Whether messages may come and go for good: what was told to have come stays, and comes once."""


class WrongPurposeError(TypeError):
    """A work does what its purpose does not allow. Nothing of it is done.

    None is the purpose of a work that only reads.
    """

    def __init__(self, purpose: Purpose | None, act: str = "changes something") -> None:
        named = "to read" if purpose is None else f"for {purpose.name}"
        super().__init__(f"a work {named} {act}; give it the purpose that it has")


class _Unit(Protocol):
    """Where a work is done."""

    @property
    def purpose(self) -> Purpose:
        """What the work is for."""


U = TypeVar("U", bound=_Unit)


def alone(verb: Callable[Concatenate[U, P], T]) -> Callable[Concatenate[U, P], T]:
    """Let only works that are alone use a verb of a unit, because others go by what it changes."""

    @functools.wraps(verb)
    def checked(unit: U, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not unit.purpose.alone:
            raise WrongPurposeError(
                unit.purpose, f"calls {verb.__qualname__}, beside others who go by what that changes"
            )
        return verb(unit, *args, **kwargs)

    return checked


def once(verb: Callable[Concatenate[U, P], T]) -> Callable[Concatenate[U, P], T]:
    """Let no work that may be done twice use a verb of a unit."""

    @functools.wraps(verb)
    def checked(unit: U, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if unit.purpose.again:
            raise WrongPurposeError(unit.purpose, f"calls {verb.__qualname__}, and may be done twice")
        return verb(unit, *args, **kwargs)

    return checked
