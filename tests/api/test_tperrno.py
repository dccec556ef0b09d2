"""How calls fail: each tperrno and each diagnostic that can happen, and what becomes of the transaction."""

# ruff: noqa: F403, F405 - as programs import it

from __future__ import annotations

import copy
import errno
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import qmadmin
from qmadmin.atmi import *
from qmcore.probe import Point, Probe
from qmcore.purpose import Purpose
from tests.fix_atmi import refused
from tests.fix_store import Child, attachment_of

BIG = b"x" * (64 * 1024 * 1024 + 1)


@pytest.fixture
def space(joined: Path) -> Iterator[qmadmin.QueueSpace]:
    """The queue space as its administrator sees it."""
    with qmadmin.open_device(joined) as device, device.open_space("QSPACE") as opened:
        yield opened


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that other users may enter, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="qmadmin-test-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory


def outcome(call: Callable[..., object], *arguments: object) -> str:
    """Return the names of tperrno and of the diagnostic, which is in the structure too, or nothing for a success."""
    control = TPQCTL(diagnostic=-99)
    error: TPException | None = None
    try:
        call(*(control if argument is TPQCTL else argument for argument in arguments))
    except TPException as caught:
        error = caught
    assert control.diagnostic == (error.diagnostic if error else 0)
    if error is None:
        return ""
    if error.tperrno == TPEDIAGNOSTIC:
        return error.message.partition(":")[0]
    assert error.diagnostic == 0
    return error.name


def enqueue(queue: str = "STRING", data: object = b"data", flags: int = 0) -> str:
    return outcome(tpenqueue, "QSPACE", queue, TPQCTL, data, flags)


def dequeue(queue: str = "STRING", flags: int = 0) -> str:
    return outcome(tpdequeue, "QSPACE", queue, TPQCTL, flags)


def fail(descriptor: int) -> None:
    """Bring nothing to the disk."""
    raise OSError(errno.EIO, os.strerror(errno.EIO))


# ---- the values -----------------------------------------------------------------------------------------------------


def test_tperrno_has_the_values_of_the_header_file() -> None:
    names = (
        "TPEABORT TPEBADDESC TPEBLOCK TPEINVAL TPELIMIT TPENOENT TPEOS TPEPERM TPEPROTO TPESVCERR TPESVCFAIL TPESYSTEM"
        " TPETIME TPETRAN TPGOTSIG TPERMERR TPEITYPE TPEOTYPE TPERELEASE TPEHAZARD TPEHEURISTIC TPEEVENT TPEMATCH"
        " TPEDIAGNOSTIC TPEMIB"
    )
    assert dict(enumerate(names.split(), 1)) == {value: ERROR_NAMES[value] for value in sorted(ERROR_NAMES)}
    assert [globals()[name] for name in names.split()] == list(range(1, 26))


def test_diagnostics_have_the_values_of_the_header_file() -> None:
    names = (
        "INVAL BADRMID NOTOPEN TRAN BADMSGID SYSTEM OS ABORTED PROTO BADQUEUE NOMSG INUSE NOSPACE RELEASE INVHANDLE"
        " SHARE"
    )
    assert [globals()[f"QME{name}"] for name in names.split()] == [-number for number in range(1, 17)]
    assert QMENOTA == QMEABORTED


@pytest.mark.usefixtures("joined")
def test_an_exception_tells_its_name_the_diagnostic_and_what_was_wrong() -> None:
    error = refused(tpdequeue, "QSPACE", "STRING", None)
    assert (error.tperrno, error.name, error.diagnostic) == (TPEDIAGNOSTIC, "TPEDIAGNOSTIC", QMENOMSG)
    assert str(error) == "TPEDIAGNOSTIC: QMENOMSG: queue 'STRING' has no message that can be dequeued"
    assert isinstance(error.__cause__, qmadmin.NoMessageError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.diagnostic) == (str(error), QMENOMSG)


# ---- tperrno --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("joined")
def test_a_flag_that_an_enqueue_has_not_is_tpeinval() -> None:
    for flags in (0x04, 0x10, TPNOCHANGE, 0x200, -1, 2**80, None, "8", 8.0, True):
        assert enqueue(flags=flags) == "TPEINVAL"
    assert dequeue() == "QMENOMSG"


@pytest.mark.usefixtures("joined")
def test_a_flag_that_a_dequeue_has_not_is_tpeinval() -> None:
    enqueue()
    for flags in (0x04, 0x10, 0x200, -1, 2**80, None, "8", 8.0, True):
        assert dequeue(flags=flags) == "TPEINVAL"
    assert dequeue() == ""


@pytest.mark.usefixtures("joined")
def test_an_argument_of_a_wrong_type_is_tpeinval() -> None:
    for qspace in (None, "", b"QSPACE", 7, ["QSPACE"]):
        assert outcome(tpenqueue, qspace, "STRING", TPQCTL, b"") == "TPEINVAL"
        assert outcome(tpdequeue, qspace, "STRING", TPQCTL) == "TPEINVAL"
    for qname in (None, b"STRING", 7, ["STRING"]):
        assert refused(tpenqueue, "QSPACE", qname, None, b"").name == "TPEINVAL"
        assert refused(tpdequeue, "QSPACE", qname, None).name == "TPEINVAL"
    for data in (7, 10**10, ["a"], {}, 1.5, "\ud800"):
        assert refused(tpenqueue, "QSPACE", "STRING", None, data).name == "TPEINVAL"
    for ctl in ({}, 0, "flags", TPQCTL):
        assert refused(tpenqueue, "QSPACE", "STRING", ctl, b"").name == "TPEINVAL"
        assert refused(tpdequeue, "QSPACE", "STRING", ctl).name == "TPEINVAL"
    assert dequeue() == "QMENOMSG"


@pytest.mark.usefixtures("joined")
def test_a_queue_space_that_is_not_there_is_tpenoent() -> None:
    for qspace in ("NONE", "x" * 16, "a\0b", "qspace"):
        assert outcome(tpenqueue, qspace, "STRING", TPQCTL, b"") == "TPENOENT"
        assert outcome(tpdequeue, qspace, "STRING", TPQCTL) == "TPENOENT"


@pytest.mark.usefixtures("joined")
def test_tpnochange_takes_a_message_of_the_expected_type_only(space: qmadmin.QueueSpace) -> None:
    tpenqueue("QSPACE", "STRING", None, "text")
    space.enqueue("STRING", b"typed", type="VIEW32", subtype="order")
    for wrong in ("CARRAY", "STRING:order", "string", ""):
        assert refused(tpdequeue, "QSPACE", "STRING", None, TPNOCHANGE, kind=wrong).name == "TPEOTYPE"
    assert tpdequeue("QSPACE", "STRING", None, TPNOCHANGE, kind="STRING") == b"text"
    assert refused(tpdequeue, "QSPACE", "STRING", None, TPNOCHANGE, kind="VIEW32").name == "TPEOTYPE"
    assert tpdequeue("QSPACE", "STRING", None, TPNOCHANGE | TPNOTRAN, kind="VIEW32:order") == b"typed"
    assert refused(tpdequeue, "QSPACE", "STRING", None, TPNOCHANGE, kind="STRING").diagnostic == QMENOMSG


@pytest.mark.usefixtures("joined")
def test_tpnochange_finds_what_is_asked_for_and_fills_the_structure() -> None:
    for name in (b"a", b"b"):
        tpenqueue("QSPACE", "STRING", TPQCTL(flags=TPQCORRID, corrid=name), name.decode())
    found = TPQCTL(flags=TPQGETBYCORRID | TPQMSGID, corrid=b"b")
    peek = copy.copy(found)
    peek.flags |= TPQPEEK
    assert refused(tpdequeue, "QSPACE", "STRING", peek, TPNOCHANGE | TPNOTRAN, kind="CARRAY").name == "TPEOTYPE"
    assert tpdequeue("QSPACE", "STRING", peek, TPNOCHANGE | TPNOTRAN, kind="STRING") == b"b"
    assert tpdequeue("QSPACE", "STRING", found, TPNOCHANGE, kind="STRING") == b"b"
    assert found.msgid == peek.msgid
    assert tpdequeue("QSPACE", "STRING", None) == b"a"


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("kind", [None, 7, b"STRING"])
def test_tpnochange_without_a_type_is_tpeinval(kind: object) -> None:
    assert refused(tpdequeue, "QSPACE", "STRING", None, TPNOCHANGE, kind=kind).name == "TPEINVAL"


@pytest.mark.usefixtures("joined")
def test_a_message_of_another_type_is_not_tried_and_dooms_the_transaction() -> None:
    tpenqueue("QSPACE", "STRING", None, "text")
    tpbegin()
    assert refused(tpdequeue, "QSPACE", "STRING", None, TPNOCHANGE, kind="CARRAY").name == "TPEOTYPE"
    assert enqueue() == "QMEABORTED"
    assert refused(tpcommit).name == "TPEABORT"
    # No retries are granted to the queue: a try would have sent it to the error queue.
    assert tpdequeue("QSPACE", "STRING", None) == b"text"


@pytest.mark.usefixtures("joined")
def test_tpnotran_keeps_a_message_of_another_type_from_the_transaction() -> None:
    tpenqueue("QSPACE", "STRING", None, "text")
    tpbegin()
    tpenqueue("QSPACE", "RPLYQ", None, b"kept")
    flags = TPNOCHANGE | TPNOTRAN
    assert refused(tpdequeue, "QSPACE", "STRING", None, flags, kind="CARRAY").name == "TPEOTYPE"
    assert tpdequeue("QSPACE", "STRING", None, flags, kind="STRING") == b"text"
    tpcommit()
    assert tpdequeue("QSPACE", "RPLYQ", None) == b"kept"


@pytest.mark.usefixtures("joined")
def test_a_message_of_the_expected_type_comes_back_with_the_transaction() -> None:
    tpenqueue("QSPACE", "STRING", None, "text")
    tpbegin()
    assert tpdequeue("QSPACE", "STRING", None, TPNOCHANGE, kind="STRING") == b"text"
    tpabort()
    assert tpdequeue("QSPACE", "errq", None) == b"text"


# ---- diagnostics ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("joined")
def test_a_queue_that_is_not_there_is_qmebadqueue() -> None:
    for qname in ("NONE", "", "x" * 200, "string", "\ud800"):
        assert enqueue(qname) == "QMEBADQUEUE"
        assert dequeue(qname) == "QMEBADQUEUE"


def test_a_queue_that_is_stopped_is_qmebadqueue(space: qmadmin.QueueSpace) -> None:
    space.stop_queue("STRING")
    assert enqueue() == "QMEBADQUEUE"
    assert dequeue() == "QMEBADQUEUE"


@pytest.mark.usefixtures("joined")
def test_a_message_that_is_too_large_is_qmeinval_and_one_without_room_qmenospace() -> None:
    assert enqueue(data=BIG) == "QMEINVAL"
    assert enqueue(data=b"x" * 100 * 4096) == "QMENOSPACE"
    assert dequeue() == "QMENOMSG"


@pytest.mark.usefixtures("joined")
def test_a_message_too_many_is_qmenospace() -> None:
    for _ in range(10):
        assert enqueue() == ""
    assert enqueue() == "QMENOSPACE"
    assert enqueue("MEMORY") == "QMENOSPACE"


@pytest.mark.usefixtures("joined")
def test_a_non_persistent_message_without_memory_is_qmenospace(space: qmadmin.QueueSpace) -> None:
    assert enqueue("MEMORY", b"x" * 100_000) == "QMENOSPACE"
    assert enqueue("MEMORY", b"x" * 10_000) == ""


def test_a_transaction_too_many_is_qmenospace_and_is_not_doomed(space: qmadmin.QueueSpace) -> None:
    for _ in range(4):
        assert enqueue() == ""
    transactions = [space.transaction() for _ in range(3)]
    for transaction in transactions:
        transaction.join_context()
        assert space.dequeue("STRING") is not None
        transaction.leave_context()
    tpbegin()
    assert dequeue() == "QMENOSPACE"
    transactions[0].commit()
    assert dequeue() == ""
    tpcommit()
    for transaction in transactions[1:]:
        transaction.commit()


def test_a_process_too_many_is_qmenospace(joined: Path) -> None:
    with qmadmin.open_device(joined) as one, qmadmin.open_device(joined) as two, qmadmin.open_device(joined) as three:
        for device in (one, two, three):
            device.open_space("QSPACE")
        assert enqueue() == "QMENOSPACE"
        assert dequeue() == "QMENOSPACE"
    assert enqueue() == ""


def test_a_message_of_which_nobody_can_tell_is_tpetime_and_the_store_that_failed_is_qmesystem(
    joined: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert enqueue() == ""
    with monkeypatch.context() as patch:
        patch.setattr(Probe, "actions", {Point.BEFORE_SYNC: (fail,)})
        assert enqueue() == "TPETIME"
    # What was not brought to the disk cannot be told: the device has to be opened again.
    assert enqueue() == "QMESYSTEM"
    tpterm()
    tpinit(joined)
    assert dequeue() == ""


def test_a_commit_that_was_not_brought_to_the_disk_is_tpehazard(joined: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tpbegin()
    assert enqueue() == ""
    with monkeypatch.context() as patch:
        patch.setattr(Probe, "actions", {Point.BEFORE_SYNC: (fail,)})
        assert refused(tpcommit).name == "TPEHAZARD"
    assert tpgetlev() == 0
    tpbegin()
    assert enqueue() == "QMESYSTEM"
    assert refused(tpcommit).name == "TPEABORT"


def test_a_commit_after_one_that_was_not_brought_to_the_disk_is_tpeabort(
    joined: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tpbegin()
    assert enqueue() == ""
    with monkeypatch.context() as patch:
        patch.setattr(Probe, "actions", {Point.BEFORE_SYNC: (fail,)})
        assert enqueue("RPLYQ", flags=TPNOTRAN) == "TPETIME"
    assert refused(tpcommit).name == "TPEABORT"
    tpterm()
    tpinit(joined)
    assert dequeue() == "QMENOMSG"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_device_that_may_only_be_read_is_qmeos_and_one_that_may_not_tpeos(
    atmi_device: Path, reachable: Path, start: Callable[..., Child]
) -> None:
    closed = reachable / "CLOSED"
    closed.touch(0o600)
    readable = shutil.copy(atmi_device, reachable / "QUE")
    readable.chmod(0o644)
    child = start(
        "import qmadmin.atmi.calls\n"
        "from qmadmin.atmi import *\n"
        "other_user()\n"
        "for call in (\n"
        "    lambda: tpinit(sys.argv[2]),\n"
        "    lambda: tpinit(sys.argv[1]),\n"
        "    lambda: tpenqueue('QSPACE', 'STRING', None, b''),\n"
        "    lambda: tpdequeue('QSPACE', 'STRING', None),\n"
        "):\n"
        "    try:\n"
        "        call()\n"
        "        say('done')\n"
        "    except TPException as error:\n"
        "        say(error.name, error.diagnostic)\n",
        readable,
        closed,
    )
    child.expect("TPEOS 0", "done", "TPEDIAGNOSTIC -7", "TPEDIAGNOSTIC -7")
    child.finish()


# ---- the transaction ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("joined")
def test_what_is_only_refused_leaves_the_transaction_as_it_was() -> None:
    tpbegin()
    assert enqueue() == ""
    assert enqueue(flags=0x1000) == "TPEINVAL"
    assert enqueue("NONE") == "QMEBADQUEUE"
    assert enqueue(data=b"x" * 100 * 4096) == "QMENOSPACE"
    assert outcome(tpenqueue, "NONE", "STRING", TPQCTL, b"") == "TPENOENT"
    assert refused(tpenqueue, "QSPACE", "STRING", TPQCTL(flags=TPQTOP), b"").diagnostic == QMEINVAL
    assert refused(tpdequeue, "QSPACE", "STRING", TPQCTL(flags=TPQGETBYMSGID)).diagnostic == QMEBADMSGID
    assert dequeue("RPLYQ") == "QMENOMSG"
    assert dequeue("NONE") == "QMEBADQUEUE"
    assert refused(tpbegin).name == "TPEPROTO"
    tpcommit()
    assert dequeue() == ""
    assert dequeue() == "QMENOMSG"


def test_a_failure_of_the_store_dooms_the_transaction(joined: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from qmstorage import claiming

    real = claiming.read

    def fail(*arguments: object, **options: object) -> object:
        import sqlite3

        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    assert enqueue() == ""
    assert enqueue() == ""
    tpbegin()
    assert enqueue("RPLYQ") == ""
    with monkeypatch.context() as patch:
        patch.setattr(claiming, "read", fail)
        assert dequeue() == "QMEOS"
    assert claiming.read is real
    assert dequeue() == "QMEABORTED"
    assert enqueue() == "QMEABORTED"
    assert enqueue(flags=TPNOTRAN) == ""
    assert tpgetlev() == 1
    error = refused(tpcommit)
    assert (error.name, error.diagnostic) == ("TPEABORT", 0)
    assert tpgetlev() == 0
    assert dequeue("RPLYQ") == "QMENOMSG"
    assert [dequeue() for _ in range(4)] == ["", "", "", "QMENOMSG"]


def test_a_transaction_that_others_have_rolled_back_is_qmeaborted(joined: Path, space: qmadmin.QueueSpace) -> None:
    assert enqueue() == ""
    tpbegin()
    assert dequeue() == ""
    volume = attachment_of(space).volume
    record = volume.read(lambda unit: unit.transactions.of_space(attachment_of(space).opened.space.id))[0]

    def give_up(unit: object) -> None:
        from qmcore.acts.returning import Cause, Ending, give_back

        opened = attachment_of(space).opened
        assert unit.transactions.end(record.id, record.owner_id)
        give_back(unit, opened, record.id, opened.definitions(unit).by_id, 0, Ending(Cause.DEATH))

    volume.write(give_up, Purpose.ADMINISTRATION)
    assert dequeue("errq") == "QMEABORTED"
    assert refused(tpcommit).name == "TPEABORT"
    assert dequeue("errq") == ""


@pytest.mark.usefixtures("joined")
def test_a_commit_whose_queue_is_gone_or_that_has_no_room_is_tpeabort(space: qmadmin.QueueSpace) -> None:
    tpbegin()
    assert enqueue("RPLYQ") == ""
    assert enqueue("SHORT") == ""
    space.destroy_queue("SHORT", force=True)
    assert refused(tpcommit).name == "TPEABORT"
    assert dequeue("RPLYQ") == "QMENOMSG"
    tpbegin()
    assert enqueue("RPLYQ") == ""
    for _ in range(10):
        space.enqueue("STRING", b"")
    assert refused(tpcommit).name == "TPEABORT"
    assert tpgetlev() == 0
    assert dequeue("RPLYQ") == "QMENOMSG"


def test_an_interrupted_call_dooms_the_transaction(joined: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from qmstorage import claiming

    def interrupt(*arguments: object, **options: object) -> object:
        raise KeyboardInterrupt

    assert enqueue() == ""
    tpbegin()
    with monkeypatch.context() as patch:
        patch.setattr(claiming, "read", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tpdequeue("QSPACE", "STRING", None)
    assert dequeue() == "QMEABORTED"
    assert refused(tpcommit).name == "TPEABORT"
