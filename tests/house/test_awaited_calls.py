"""The API for asyncio has each call of the synchronous one, with the same parameters."""

import inspect

import pytest

import qmadmin
from qmadmin import aio

FACES = {
    qmadmin.Device: (
        aio.Device,
        # For our own programs and the parts of a device.
        {"attachment", "audit", "audit_outcome", "command_refusal", "drop", "refusal", "refuse_readonly", "use"}
        | {"volume_of", "volume_of_space", "warn_of_commands"},
    ),
    qmadmin.QueueSpace: (
        aio.QueueSpace,
        # A task awaits messages itself, and an App has coroutines work on them. PEP 249's branches belong to threads.
        # What a task does with a transaction is one block.
        {"consume", "resume", "watch"}
        | {f"tpc_{name}" for name in ("begin", "prepare", "commit", "rollback", "suspend", "resume")},
    ),
    qmadmin.Transaction: (
        aio.Transaction,
        # For consumers, and for calls that belong to it.
        {
            "answer_failure",
            "branch",
            "commit_and_take",
            "connection",
            "databases",
            "forget_since",
            "give_up",
            "is_here",
            "join_context",
        }
        | {"leave_context", "marks", "note", "return_untried", "successor"}
        # A task goes on with its transaction, whatever it awaits.
        | {"is_untouched", "suspend", "take_over"}
        # For tpcommit, whose caller says at the commit what others say at the beginning.
        | {"wait_until_complete"},
    ),
}


def public(face):
    return {name for name in dir(face) if not name.startswith("_")}


def parameters_of(function):
    """Return the parameters of a call by their names: their kinds, defaults and annotations."""
    found = inspect.signature(function).parameters
    return {
        name: (each.kind, each.default, str(each.annotation))
        for name, each in found.items()
        if name not in ("self", "connection", "transaction")
    }


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_no_call_is_missing(face):
    awaited, not_for_tasks = FACES[face]
    missing = public(face) - public(awaited) - {"device"}
    assert missing == not_for_tasks, f"one more is a line, as the others, in {inspect.getsourcefile(awaited)}"


@pytest.mark.parametrize(
    ("face", "name"),
    [
        (face, name)
        for face, (awaited, _) in FACES.items()
        for name in sorted(public(face) & public(awaited))
        if inspect.isfunction(getattr(face, name))
    ],
)
def test_a_call_has_the_parameters_of_the_synchronous_one_and_is_awaited(face, name):
    call, awaited = getattr(face, name), getattr(FACES[face][0], name)
    assert parameters_of(awaited) == parameters_of(call)
    if "connection" in inspect.signature(call).parameters:
        assert "transaction" in inspect.signature(awaited).parameters
    assert awaited.__doc__
    is_at_once = name in {"open_space", "remaining", "transaction", "wake", "xid"}
    assert is_at_once or inspect.iscoroutinefunction(awaited) or inspect.isasyncgenfunction(awaited)


@pytest.mark.parametrize("name", ["create_device", "open_device"])
def test_a_device_is_opened_with_the_same_parameters(name):
    assert inspect.signature(getattr(aio, name)) == inspect.signature(getattr(qmadmin, name))
