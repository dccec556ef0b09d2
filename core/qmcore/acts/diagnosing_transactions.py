"""What a doctor says of transactions: those that were left, are open for long, or are in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from qmcore.attached import DeciderReach, DecisionInfo, TransactionInfo
from qmcore.findings import Finding, Severity
from qmcore.space import Space
from qmcore.times import MICROS, show

_MINUTE_US: Final = 60 * MICROS
_HOUR_US: Final = 60 * _MINUTE_US
_BRING_BACK: Final = "Open the queue space and bring that back, or say in [recovery] of the settings where it is now"
_OPEN: Final = "Open the queue space: that rolls it back."


def findings(space: Space, infos: Iterable[TransactionInfo], now: int) -> Iterator[Finding]:
    """Say which transactions have lost their owner, which have been open or in doubt for long, or ended in doubt."""
    for info in infos:
        has = f"it has {info.messages} message{'s' * (info.messages != 1)} in {space.name}"
        found = _in_doubt(info, has, space.name, now) if info.prepared_us is not None else _open(info, has, now)
        if found is not None:
            name = info.id if info.prepared_us is None else info.name
            check, sentence, advice = found
            yield Finding(
                severity=Severity.WARNING, check=check, target=f"transaction {name}", sentence=sentence, advice=advice
            )


def untold(infos: Iterable[DecisionInfo], now: int) -> Iterator[Finding]:
    """Say of which decisions branches elsewhere were not told for long."""
    for info in infos:
        if now - info.decided_us > _HOUR_US:
            yield Finding(
                severity=Severity.WARNING,
                check="transaction-untold",
                target=f"transaction {info.xid}",
                sentence=f"it was decided, {show(info.decided_us)}, and its branch in {info.participant} was not told"
                " since",
                advice=f"{_ask_there(info.participant) or _BRING_BACK}; if it is gone for ever, type qforgettrans"
                f" {info.xid}",
            )


def _open(info: TransactionInfo, has: str, now: int) -> tuple[str, str, str] | None:
    """Return the check, the sentence and the advice for a transaction that is not prepared."""
    if info.owner is None or not info.owner.alive:
        process = f"({info.owner}) is dead" if info.owner else "has left"
        return "transaction-left", f"its process {process}; {has}", _OPEN
    if now - info.since_us <= _HOUR_US:
        return None
    return (
        "transaction-long",
        f"{info.owner} has had it open since {show(info.since_us)}; {has}",
        "Find out what it waits for; qaborttrans rolls it back.",
    )


def _in_doubt(info: TransactionInfo, has: str, where: str, now: int) -> tuple[str, str, str] | None:
    """Return the same for one that is prepared, or was ended so."""
    since, ends = info.prepared_us or now, f"type qcommittrans {info.name} or qaborttrans {info.name}"
    if info.state.is_heuristic:
        by = f"{info.ended_by}, {show(info.ended_us or 0)}"
        sentence = f"it was ended by {by}, without the decision of its coordinator, which has not asked since"
        advice = "Find out how its coordinator decided, put right what differs, and forget it with qforgettrans"
        return "transaction-heuristic", f"{sentence}: {info.state.value} in {where}", f"{advice} {info.name}"
    if info.reached is DeciderReach.NEVER:
        return (
            "transaction-undecidable",
            f"it is prepared, and does not end by itself: {info.unreached}; {has}",
            f"Find out how it ended where it came from, or elsewhere, and {ends}",
        )
    if info.reached is DeciderReach.NO and now - since > _MINUTE_US:
        first = _ask_there(info.decider) or "Bring that back"
        return (
            "transaction-decider",
            f"it has waited since {show(since)} for its decider, which cannot be reached: {info.unreached}; {has}",
            f"{first}, and the transaction ends by itself; or find out how it ended elsewhere, and {ends}",
        )
    process = f"{info.whose or 'a process'} prepared it, {show(since)}, and is"
    if info.presumes_abort and not info.lives:
        sentence = f"{process} dead; nobody decides, and its abort is presumed; {has}"
        return "transaction-left", sentence, _OPEN
    if now - since <= _HOUR_US:
        return None
    if info.presumes_abort:
        waits, first = "that process, on whose death its abort is presumed", "End that process, and it is rolled back"
    else:
        waits, first = "its coordinator", "Start its coordinator again"
    return (
        "transaction-in-doubt",
        f"{process} {'' if info.lives else 'no longer '}attached; it waits for {waits}; {has}",
        f"{first}; or find out how it decided, and {ends}",
    )


def _ask_there(place: str) -> str:
    """Return what to do so that a database of the application is asked or told; empty for a queue space."""
    # As a place is shown; queue spaces are shown as "NAME on DEVICE".
    is_database = place.startswith(("database '", 'database "'))
    return "Run the application, or call qmadmin.recover with a connection to it" if is_database else ""
