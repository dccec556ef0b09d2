"""A work that does what its purpose does not allow fails on each store in the same way, and nothing of it is done."""

import dataclasses
import os

import pytest

from qmadmin.audit import entry_of
from qmcore.acts import dequeue as dequeuing
from qmcore.acts import enqueue as enqueuing
from qmcore.acts.commit import commits_of
from qmcore.acts.transaction_part import Branch, holder_of
from qmcore.device import Extent
from qmcore.message import PLAIN_CONTROL
from qmcore.purpose import Purpose, WrongPurposeError
from qmcore.records import Role
from qmcore.selection import FIRST
from qmcore.transitions import Claimed, Committed, Enqueued
from qmcore.two_phase import Begin, Prepare, Prepared
from qmcore.xid import Xid
from tests.fix_store import Work, attachment_of, drain


def bring(unit, opened):
    enqueuing.enqueue_in(unit, opened, enqueuing.prepare([("Q", b"brought", PLAIN_CONTROL)], 4096))


def consume(unit, opened):
    (claim,) = dequeuing.claims_for(opened, opened.definitions(unit), dequeuing.Wanted("Q", FIRST, 1))
    assert isinstance(unit.claim(claim), Claimed)


def hold(unit, opened):
    wanted = dequeuing.Wanted("Q", FIRST, 1, branch=Branch(opened, opened.owner, 0, None))
    (claim,) = dequeuing.claims_for(opened, opened.definitions(unit), wanted)
    assert isinstance(unit.claim(claim), Claimed)


def begin(unit, opened):
    known = opened.definitions(unit)
    holder = holder_of(Branch(opened, opened.owner, 0, None), known.space, Role.ENQUEUED, 0)
    (spilled,) = enqueuing.prepare([("Q", b"spilled", PLAIN_CONTROL)], 4096)
    (command,) = enqueuing.commands_for(opened, known, [spilled])
    numbered = [command.arrivals[0]._replace(sequence=unit.counters.reserve(opened.space.id, 1)[0])]
    assert isinstance(unit.enqueue(command._replace(arrivals=numbered, holder=holder)), Enqueued)


def commit(unit, opened):
    branch = Branch(opened, opened.owner, 0, None, reserved=unit.counters.reserve(opened.space.id, 1))
    (brought,) = enqueuing.prepare([("Q", b"brought", PLAIN_CONTROL)], 4096)
    (result,) = unit.execute(commits_of(opened, opened.definitions(unit), branch, [brought]))
    assert isinstance(result, Committed)


def prepare(unit, opened):
    known, xid = opened.definitions(unit), Xid(1, os.urandom(8))
    branch = Branch(opened, opened.owner, 0, None)
    holder = holder_of(branch, known.space, Role.DEQUEUED, 0)
    guard = opened.guard(known)
    commands = [Begin(guard, holder, xid), Prepare(guard, branch.id, branch.owner.id, xid, [], [], 0, 0, "")]
    assert isinstance(unit.execute(commands)[1], Prepared)


def record(unit, _opened):
    unit.audit.add(entry_of("qdestroy Q", "queue SPACE/Q", 0))


def switch(unit, opened):
    queue = opened.definitions(unit).queue("Q")
    unit.queues.change(dataclasses.replace(queue, enqueue_enabled=not queue.enqueue_enabled))


def create(unit, opened):
    name = f"N{len(unit.queues.of_space(opened.space.id))}"
    unit.queues.add(
        opened.space.id, dataclasses.replace(unit.queues.of_space(opened.space.id)[0].definition, name=name), 0
    )


def cut(unit, _opened):
    number = len(unit.device.extents())
    unit.device.add_extents([Extent("OTHER", number, 0, 1000 + number, 1)])


ALONE = {purpose for purpose in Purpose if purpose.alone}
ONCE = {purpose for purpose in Purpose if not purpose.again}
FOR_GOOD = {Purpose.MESSAGES, Purpose.PROMISE, Purpose.COMPLETING, Purpose.SUBSCRIBING, Purpose.ADMINISTRATION}


@pytest.mark.parametrize(
    ("act", "allowed"),
    [
        (bring, FOR_GOOD),
        (consume, FOR_GOOD),
        (hold, ONCE),
        (begin, ONCE),
        (commit, FOR_GOOD),
        (prepare, {Purpose.PROMISE, Purpose.PREPARING}),
        (record, ONCE),
        (switch, ALONE),
        (create, ALONE),
        (cut, ALONE),
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)
def test_a_work_is_refused_that_does_what_its_purpose_does_not_allow(store, space, act, allowed):
    space.enqueue_many("Q", "abcdefgh")
    attachment = attachment_of(space)

    def standing():
        opened = attachment.opened
        return store.device.audited(), attachment.volume.read(
            lambda unit: (
                unit.device.extents(),
                unit.transactions.of_space(opened.space.id),
                unit.queues.of_space(opened.space.id),
                unit.counters.level(opened.space.id),
            )
        )

    def work(unit):
        act(unit, attachment.opened)

    for purpose in Purpose:
        before = standing()
        if purpose in allowed:
            attachment.volume.write(work, purpose)
        else:
            with pytest.raises(WrongPurposeError, match=purpose.name):
                attachment.volume.write(work, purpose)
        assert (standing() != before) is (purpose in allowed)


def test_a_work_that_is_to_read_and_changes_something_is_refused(space):
    attachment = attachment_of(space)
    with pytest.raises(WrongPurposeError, match="a work to read changes something"):
        attachment.volume.read(lambda unit: unit.spaces.set_initialized(attachment.opened.space.id))
    assert space.queues()


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_a_command_that_changes_something_is_refused_as_a_look(space):
    space.enqueue("Q", "a")
    attachment = attachment_of(space)
    opened = attachment.opened
    known = attachment.volume.read(opened.definitions)
    commands = enqueuing.commands_for(opened, known, enqueuing.prepare([("Q", b"x", PLAIN_CONTROL)], 4096))
    with pytest.raises(WrongPurposeError, match="a work to read changes something"):
        attachment.volume.run(commands, purpose=None)
    assert drain(space) == ["a"]


def test_what_stands_in_line_beside_a_work_for_a_wrong_purpose_is_done(space):
    attachment = attachment_of(space)
    works = [
        lambda: attachment.volume.write(lambda unit: bring(unit, attachment.opened), Purpose.TIDY),
        *[lambda: space.enqueue("Q", "x")] * 3,
    ]
    assert [type(result) for result in Work(*works).results()] == [WrongPurposeError, str, str, str]
    assert drain(space) == ["x"] * 3
