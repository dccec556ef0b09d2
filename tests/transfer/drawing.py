"""Queue spaces with all that a message can have, drawn at random, and what is seen of them through the API."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from hypothesis import strategies as st

from qmadmin.space import QueueSpace
from qmcore.errors import QueueError
from qmcore.message import ConsumedMessage, MessageInfo
from tests.fix_store import queue_definition

HOUR = 3600.0
TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)
QUEUES = (
    queue_definition("fifo", out_of_order="top,msgid", retries=3, error_queue="errors"),
    queue_definition("lifo", order="lifo", out_of_order="top,msgid", retries=1),
    queue_definition("urgent", order="priority,time", out_of_order="msgid", retries=2, retry_delay=7200),
    queue_definition("mortal", order="expiration,priority,lifo", expiration=7200, keep_expired=True),
    queue_definition("groups", grouping=True, retries=5),
    queue_definition("kept", retention=-1),
    queue_definition("errors"),
    queue_definition("empty", order="time"),
)
NAMES = st.sampled_from([definition.name for definition in QUEUES[:-1]])
BODIES = st.none() | st.binary(max_size=20) | st.sampled_from([b"", b"x" * 5000, b"y" * (1024 * 1024 + 1)])


@st.composite
def controls(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what a sender may ask for."""
    asked: dict[str, Any] = {"priority": draw(st.integers(1, 100))}
    optional: dict[str, st.SearchStrategy[Any]] = {
        "corrid": st.binary(min_size=1, max_size=32).filter(lambda raw: not raw.endswith(b"\0")),
        "delay": st.floats(HOUR, 100 * HOUR),
        "expires_in": st.floats(200 * HOUR, 1000 * HOUR),
        "reply_queue": TEXTS,
        "failure_queue": TEXTS,
        "error_queue": st.just("errors"),
        "urcode": st.integers(-(2**63), 2**63 - 1),
        "reply_persistent": st.booleans(),
        "headers": st.dictionaries(TEXTS, TEXTS, max_size=3),
        "type": TEXTS,
        "subtype": TEXTS,
        "top": st.just(True),
    }
    for name in draw(st.sets(st.sampled_from(sorted(optional)), max_size=4)):
        asked[name] = draw(optional[name])
    return asked


@dataclasses.dataclass
class Act:
    """Something that is done to a queue space."""

    what: str
    queue: str
    body: bytes | None = None
    control: dict[str, Any] = dataclasses.field(default_factory=dict)


ACTS = st.lists(
    st.builds(Act, st.just("enqueue"), NAMES, BODIES, controls())
    | st.builds(Act, st.sampled_from(["dequeue", "roll back", "before", "group"]), NAMES),
    min_size=1,
    max_size=25,
)


def done(space: QueueSpace, acts: list[Act], *, memory: bool) -> None:
    """Do all of this; what a queue does not allow is left out."""
    for definition in QUEUES:
        space.create_queue(definition)
    for number, act in enumerate(acts):
        with contextlib.suppress(QueueError):
            _do(space, act, memory and number % 3 == 0)


def _do(space: QueueSpace, act: Act, in_memory: bool) -> None:
    match act.what:
        case "enqueue":
            persistent = False if in_memory and act.queue != "groups" else None
            space.enqueue(act.queue, act.body, persistent=persistent, **act.control)
        case "dequeue":
            space.dequeue(act.queue)
        case "roll back":
            transaction = space.transaction()
            with transaction:
                space.dequeue(act.queue)
                transaction.rollback()
        case "before":
            first = space.peek(act.queue)
            if first is not None:
                space.enqueue(act.queue, b"before", before=first.msgid)
        case "group":
            with space.transaction():
                for body in (b"one", b"two", b"three"):
                    space.enqueue(act.queue, body)


Seen = dict[str, tuple[list[tuple[MessageInfo, bytes | None]], list[tuple[ConsumedMessage, bytes | None]]]]


def seen(space: QueueSpace) -> Seen:
    """Return all that the API tells of the messages of a queue space, in the order of their queues."""
    found: Seen = {}
    for queue in space.queues():
        stored = [(info, _body(space.content(info))) for info in space.messages(queue.name)]
        past = [(each, _body(space.recall(queue.name, each.info.msgid))) for each in space.history(queue.name)]
        found[queue.name] = (stored, past)
    return found


def _body(message: Any) -> bytes | None:
    assert message is not None
    body: bytes | None = message.body
    return body
