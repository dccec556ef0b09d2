"""The management information base: queue spaces and queues."""

from pathlib import Path
from typing import ClassVar

import pytest

from qmadmin import mib
from qmcore.errors import (
    BadQueueError,
    BadResourceError,
    InUseError,
    InvalidArgumentError,
    NoSpaceError,
    OperatingSystemError,
)
from tests.fix_mib import PAGE, QS, Q, one, refused
from tests.fix_store import make_queue, space_definition

NEW_SPACE = QS | {
    "TA_STATE": "NEW",
    "TA_IPCKEY": 54_321,
    "TA_MAXMSG": 100,
    "TA_MAXPAGES": 102,
    "TA_MAXPROC": 5,
    "TA_MAXQUEUES": 6,
    "TA_MAXTRANS": 7,
}


@pytest.fixture
def device(mib_device):
    return mib_device


@pytest.fixture
def space(mib_space):
    return mib_space


class TestQueueSpaces:
    def test_a_new_one_has_what_was_given_and_defaults(self, device):
        given = mib.set(device, "T_APPQSPACE", NEW_SPACE)
        assert given == mib.get(device, "T_APPQSPACE")[0]
        assert given["TA_STATE"] == "INA"
        assert {name: given[name] for name in NEW_SPACE if name != "TA_STATE"} == {
            name: value for name, value in (NEW_SPACE | {"TA_MAXPAGES": 100}).items() if name != "TA_STATE"
        }
        assert (given["TA_BLOCKING"], given["TA_ERRORQNAME"], given["TA_MEMNONPERSIST"]) == (16, "", "0b")
        assert (given["TA_CUREXTENT"], given["TA_PERCENTINIT"], given["TA_FORCEINIT"]) == (1, 0, "N")

    @pytest.mark.parametrize("name", sorted(set(NEW_SPACE) - {"TA_STATE"}))
    def test_what_is_required_to_create_it(self, device, name):
        given = {other: value for other, value in NEW_SPACE.items() if other != name}
        refused("TAEREQUIRED", name, mib.set, device, "T_APPQSPACE", given)

    def test_every_value_that_can_be_set_is_kept(self, device):
        more = {
            "TA_BLOCKING": 1, "TA_ERRORQNAME": "E", "TA_MAXACTIONS": 2, "TA_MAXHANDLES": 3, "TA_MAXOWNERS": 4,
            "TA_MAXTMPQUEUES": 5, "TA_MAXCURSORS": 6, "TA_MEMFILTERS": 7, "TA_MEMOVERFLOW": 8,
        }  # fmt: skip
        for request in (NEW_SPACE | more, QS | {name: 20 for name in more if name != "TA_ERRORQNAME"}):
            given = mib.set(device, "T_APPQSPACE", request)
            changed = {name: value for name, value in request.items() if name in more}
            assert {name: given[name] for name in changed} == changed
        assert {known.name for known in mib.CLASSES["T_APPQSPACE"].attributes if known.writable} == {
            *more, *NEW_SPACE, "TA_FORCEINIT", "TA_MEMNONPERSIST", "TA_VOLUME",
        } - {"TA_APPQSPACENAME"}  # fmt: skip

    def test_an_existing_name_is_refused_by_the_engine(self, device, space):
        with pytest.raises(InvalidArgumentError, match="exists already"):
            mib.set(device, "T_APPQSPACE", NEW_SPACE)

    @pytest.mark.parametrize(
        ("text", "kept"), [("3", 3), ("3B", 3), (f"{3 * PAGE}b", 3), (f"{4 * PAGE - 1}b", 3), ("9b", 0)]
    )
    def test_memory_is_blocks_unless_it_says_bytes(self, device, text, kept):
        given = mib.set(device, "T_APPQSPACE", NEW_SPACE | {"TA_MEMNONPERSIST": text})
        assert given["TA_MEMNONPERSIST"] == f"{kept * PAGE}b"
        again = mib.set(device, "T_APPQSPACE", QS | {"TA_MEMNONPERSIST": given["TA_MEMNONPERSIST"]})
        assert again["TA_MEMNONPERSIST"] == given["TA_MEMNONPERSIST"]

    @pytest.mark.parametrize("text", ["", "x", "-1", "3m", "3bb", "٣", "b"])
    def test_memory_that_is_no_amount(self, device, text):
        refused("TAEINVAL", "TA_MEMNONPERSIST", mib.set, device, "T_APPQSPACE", NEW_SPACE | {"TA_MEMNONPERSIST": text})

    @pytest.mark.parametrize(
        ("name", "value"), [("TA_MAXMSG", 0), ("TA_IPCKEY", 0), ("TA_BLOCKING", -1), ("TA_FORCEINIT", "J")]
    )
    def test_a_value_out_of_range_names_its_attribute(self, device, name, value):
        refused("TAEINVAL", name, mib.set, device, "T_APPQSPACE", NEW_SPACE | {name: value})

    def test_initializing_it(self, device):
        given = mib.set(device, "T_APPQSPACE", NEW_SPACE | {"TA_FORCEINIT": "Y"})
        assert (given["TA_PERCENTINIT"], given["TA_FORCEINIT"]) == (100, "Y")
        assert one(device, "T_APPQSPACE") == given
        assert mib.set(device, "T_APPQSPACE", QS | {"TA_FORCEINIT": "N"})["TA_FORCEINIT"] == "Y"
        other = {"TA_APPQSPACENAME": "OTHER"}
        assert mib.set(device, "T_APPQSPACE", NEW_SPACE | other)["TA_FORCEINIT"] == "N"
        given = mib.set(device, "T_APPQSPACE", other | {"TA_FORCEINIT": "Y"})
        assert (given["TA_PERCENTINIT"], given["TA_FORCEINIT"]) == (100, "Y")

    def test_states(self, device, file_store):
        device.create_space(space_definition("QS", memory=PAGE))
        assert one(device, "T_APPQSPACE")["TA_STATE"] == "INA"
        assert one(device, "T_APPQSPACE")["TA_STATE"] == "INA", "looking at it has changed nothing"
        assert mib.set(device, "T_APPQSPACE", QS | {"TA_STATE": "OPE"})["TA_STATE"] == "OPE"
        with file_store.another().open_space("QS"):
            found = one(device, "T_APPQSPACE")
            assert (found["TA_STATE"], found["TA_CURPROC"]) == ("ACT", 1)
        assert one(device, "T_APPQSPACE")["TA_STATE"] == "OPE"
        assert mib.set(device, "T_APPQSPACE", QS | {"TA_STATE": "CLE"})["TA_STATE"] == "INA"

    def test_the_state_and_the_name_select(self, device, file_store):
        for name in ("A", "B"):
            device.create_space(space_definition(name))
        with file_store.another().open_space("B"):
            names = {
                state: [found["TA_APPQSPACENAME"] for found in mib.get(device, "T_APPQSPACE", {"TA_STATE": state})]
                for state in ("INA", "ope", "ACTIVE")
            }
        assert names == {"INA": ["A"], "ope": [], "ACTIVE": ["B"]}
        assert mib.get(device, "T_APPQSPACE", {"TA_APPQSPACENAME": "C"}) == []
        refused("TAEINVAL", "TA_STATE", mib.get, device, "T_APPQSPACE", {"TA_STATE": "NEW"})

    def test_counters(self, device, space):
        space.enqueue("Q", "x")
        space.enqueue("Q", "x", persistent=False)
        with space.transaction():
            space.dequeue("Q")
            found = one(device, "T_APPQSPACE")
        assert {name: found[f"TA_CUR{name}"] for name in ("MSG", "QUEUES", "PROC", "TRANS", "MEMNONPERSIST")} == {
            "MSG": 2, "QUEUES": 2, "PROC": 1, "TRANS": 1, "MEMNONPERSIST": PAGE,
        }  # fmt: skip
        assert {found[f"TA_CUR{name}"] for name in ("HANDLES", "OWNERS", "TMPQUEUES", "CURSORS", "MEMFILTERS")} == {-1}

    def test_high_water_marks(self, device, space):
        space.enqueue_many("Q", ["x"] * 3)
        with space.transaction():
            space.dequeue("Q")
        space.dequeue("Q")
        found = one(device, "T_APPQSPACE")
        assert {name: found[f"TA_HW{name}"] for name in ("MSG", "QUEUES", "PROC", "TRANS", "ACTIONS")} == {
            "MSG": 3, "QUEUES": 2, "PROC": 1, "TRANS": 1, "ACTIONS": 0,
        }  # fmt: skip
        assert {found[f"TA_HW{name}"] for name in ("HANDLES", "OWNERS", "TMPQUEUES", "CURSORS", "MEMFILTERS")} == {-1}
        space.close()
        assert one(device, "T_APPQSPACE")["TA_HWPROC"] == 1
        mib.set(device, "T_APPQSPACE", QS | {"TA_STATE": "CLE"})
        found = one(device, "T_APPQSPACE")
        assert {name: found[f"TA_HW{name}"] for name in ("MSG", "QUEUES", "PROC", "TRANS")} == {
            "MSG": 1, "QUEUES": 2, "PROC": 0, "TRANS": 0,
        }  # fmt: skip

    def test_more_pages_are_an_extent_while_processes_are_attached(self, device, space):
        given = mib.set(device, "T_APPQSPACE", QS | {"TA_MAXPAGES": 2_010})
        assert (given["TA_MAXPAGES"], given["TA_CUREXTENT"], given["TA_STATE"]) == (2_008, 2, "ACT")
        assert space.definition.pages == 2_008
        assert mib.set(device, "T_APPQSPACE", QS | {"TA_MAXPAGES": 2_011})["TA_CUREXTENT"] == 2
        before = space.definition
        with pytest.raises(NoSpaceError):
            mib.set(device, "T_APPQSPACE", QS | {"TA_MAXPAGES": 2**30, "TA_MAXMSG": 5})
        assert space.definition == before

    def test_less_pages_are_refused(self, device, space):
        refused("TAEINVAL", "TA_MAXPAGES", mib.set, device, "T_APPQSPACE", QS | {"TA_MAXPAGES": 1_996})
        assert space.definition.pages == 2_000

    def test_limits_change_as_the_engine_lets_them(self, device, space):
        assert mib.set(device, "T_APPQSPACE", QS | {"TA_MAXMSG": 5, "TA_MAXQUEUES": 30})["TA_MAXQUEUES"] == 30
        with pytest.raises(InUseError):
            mib.set(device, "T_APPQSPACE", QS | {"TA_MAXQUEUES": 1})
        with pytest.raises(BadResourceError):
            mib.set(device, "T_APPQSPACE", {"TA_APPQSPACENAME": "NONE", "TA_MAXMSG": 5})

    @pytest.mark.parametrize("memory", [0, 20 * PAGE])
    def test_cleaning_an_active_one_needs_the_flag(self, device, memory):
        device.create_space(space_definition("QS", memory=memory))
        with device.open_space("QS") as opened:
            make_queue(opened, "Q")
            opened.enqueue("Q", "x", persistent=not memory)
            with pytest.raises(InUseError) as refusal:
                mib.set(device, "T_APPQSPACE", QS | {"TA_STATE": "CLE"})
            assert "QMIB_FORCECLOSE" in refusal.value.hint
            assert opened.usage("Q").messages == 1
            mib.set(device, "T_APPQSPACE", QS | {"TA_STATE": "CLE"}, mib.QMIB_FORCECLOSE)
            assert opened.usage("Q").messages == (0 if memory else 1)

    def test_deleting_one_that_is_in_use_needs_the_flag(self, device, space):
        with pytest.raises(InUseError, match="attached") as refusal:
            mib.set(device, "T_APPQSPACE", QS | {"TA_STATE": "INV"}, mib.QMIB_FORCEPURGE)
        assert "QMIB_FORCEDELETE" in refusal.value.hint
        space.enqueue("Q", "x")
        space.close()
        with pytest.raises(InUseError, match="holds 1 message"):
            mib.set(device, "T_APPQSPACE", QS | {"TA_STATE": "INV"})
        assert mib.set(device, "T_APPQSPACE", QS | {"TA_STATE": "INV"}, mib.QMIB_FORCEDELETE) == {}
        assert mib.get(device, "T_APPQSPACE") == []


class TestQueues:
    NEW = Q | {"TA_STATE": "NEW"}

    @pytest.fixture
    def empty(self, device):
        device.create_space(space_definition("QS", memory=20 * PAGE))

    def test_a_new_one_has_the_defaults_of_the_reference(self, device, empty):
        given = mib.set(device, "T_APPQ", self.NEW)
        assert given == one(device, "T_APPQ")
        assert given == Q | {
            "TA_QMCONFIG": device.path, "TA_STATE": "VAL", "TA_APPQORDER": "FIFO", "TA_DEFEXPIRATIONTIME": "NONE",
            "TA_DEFDELIVERYPOLICY": "PERSIST", "TA_CMD": "", "TA_CMDHW": "100%", "TA_CMDLW": "0%",
            "TA_CMDREFUSED": "", "TA_CMDNONPERSISTREFUSED": "",
            "TA_CMDNONPERSIST": "", "TA_CMDNONPERSISTHW": "100%", "TA_CMDNONPERSISTLW": "0%", "TA_MAXRETRIES": 0,
            "TA_OUTOFORDER": "NONE", "TA_RETRYDELAY": 0, "TA_CURBLOCKS": 0,
            "TA_RETRYGROWTH": "NONE", "TA_RETRYFACTOR": "2", "TA_RETRYMAXDELAY": 0, "TA_RETRYJITTER": "0",
            "TA_DEFDELAY": 0,
            "TA_CURMSG": 0, "TA_CURNONPERSISTBYTES": 0,
            "TA_CURNONPERSISTMSG": 0, "TA_ERRORQNAME": "", "TA_KEEPEXPIRED": "N", "TA_GROUPING": "N", "TA_RETENTION": 0,
            "TA_MULTICONSUMER": "N",
            "TA_ENQUEUING": "STARTED", "TA_DEQUEUING": "STARTED", "TA_CURREADY": 0, "TA_CURDELAYED": 0, "TA_CURHELD": 0,
            "TA_CURPARKED": 0,
            "TA_CURBYTES": 0, "TA_NUMENQUEUED": 0, "TA_NUMDEQUEUED": 0, "TA_NUMEXPIRED": 0, "TA_NUMDISCARDED": 0,
            "TA_NUMMOVED": 0,
            "TA_FIRSTMSGAGE": -1,
            "TA_OLDESTMSGAGE": -1,
        }  # fmt: skip

    SETTABLE: ClassVar = {
        "TA_DEFEXPIRATIONTIME": "+60", "TA_DEFDELIVERYPOLICY": "NONPERSIST", "TA_CMD": "true", "TA_CMDHW": "100m",
        "TA_CMDLW": "50m", "TA_CMDNONPERSIST": "false", "TA_CMDNONPERSISTHW": "5000b", "TA_CMDNONPERSISTLW": "10b",
        "TA_MAXRETRIES": 3, "TA_OUTOFORDER": "TOP,MSGID", "TA_RETRYDELAY": 30, "TA_ERRORQNAME": "E",
        "TA_RETRYGROWTH": "LINEAR", "TA_RETRYFACTOR": "1.5", "TA_RETRYMAXDELAY": 60, "TA_RETRYJITTER": "0.5",
        "TA_DEFDELAY": 7,
        "TA_KEEPEXPIRED": "Y", "TA_RETENTION": -1, "TA_ENQUEUING": "STOPPED", "TA_DEQUEUING": "STOPPED",
    }  # fmt: skip

    def test_every_value_that_can_be_set_is_kept(self, device, empty):
        given = mib.set(device, "T_APPQ", self.NEW | self.SETTABLE | {"TA_APPQORDER": "PRIO,TIME,LIFO"})
        assert {name: given[name] for name in self.SETTABLE} == self.SETTABLE
        known = {attribute.name for attribute in mib.CLASSES["T_APPQ"].attributes if attribute.writable}
        assert known == {*self.SETTABLE, "TA_APPQORDER", "TA_GROUPING", "TA_MULTICONSUMER", "TA_STATE"}

    @pytest.mark.parametrize("name", SETTABLE)
    def test_each_can_be_changed_and_nothing_else_is(self, device, empty, name):
        before = mib.set(device, "T_APPQ", self.NEW)
        after = mib.set(device, "T_APPQ", Q | {name: self.SETTABLE[name]} | self.needed_with(name))
        expected = before | {name: self.SETTABLE[name]} | self.needed_with(name)
        if name == "TA_CMDHW":
            expected["TA_CMDLW"] = "0m"
        if name == "TA_CMDNONPERSISTHW":
            expected["TA_CMDNONPERSISTLW"] = "0b"
        assert after == expected

    @staticmethod
    def needed_with(name):
        """A low limit is written in the unit of the high limit."""
        return {"TA_CMDLW": {"TA_CMDHW": "100m"}, "TA_CMDNONPERSISTLW": {"TA_CMDNONPERSISTHW": "5000b"}}.get(name, {})

    @pytest.mark.parametrize("name", ["TA_CMD", "TA_CMDNONPERSIST"])
    def test_a_command_that_is_not_run_is_told_in_the_answer(self, device, empty, name):
        assert mib.set(device, "T_APPQ", self.NEW | {name: "true"})[f"{name}REFUSED"] == ""
        Path(device.path).chmod(0o660)
        for said in (mib.set(device, "T_APPQ", Q | {name: "false"}), one(device, "T_APPQ")):
            assert "group" in said[f"{name}REFUSED"]
            assert said[{"TA_CMD": "TA_CMDNONPERSISTREFUSED"}.get(name, "TA_CMDREFUSED")] == ""

    @pytest.mark.parametrize(
        ("text", "kept"),
        [
            ("PRIO", "PRIO"),
            ("prio,time,lifo", "PRIO,TIME,LIFO"),
            ("TIME,PRIO,FIFO", "TIME,PRIO,FIFO"),
            ("EXPIR", "EXPIR"),
        ],
    )
    def test_orders_in_the_spelling_of_the_reference(self, device, empty, text, kept):
        assert mib.set(device, "T_APPQ", self.NEW | {"TA_APPQORDER": text})["TA_APPQORDER"] == kept

    def test_the_order_is_fixed(self, device, space):
        with pytest.raises(InvalidArgumentError, match="the order of queue 'Q' is fifo and cannot be changed"):
            mib.set(device, "T_APPQ", Q | {"TA_APPQORDER": "PRIO"})

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("TA_APPQORDER", "SIZE"), ("TA_OUTOFORDER", "ANY"), ("TA_DEFDELIVERYPOLICY", "DEFAULT"),
            ("TA_DEFEXPIRATIONTIME", "60"), ("TA_DEFEXPIRATIONTIME", "+x"), ("TA_DEFEXPIRATIONTIME", "261231"),
            ("TA_MAXRETRIES", -1), ("TA_RETRYDELAY", 2**31), ("TA_CMDHW", "100x"), ("TA_CMDHW", "101%"),
            ("TA_CMDHW", "0m"), ("TA_CMDLW", "5m"), ("TA_CMDLW", "100%"), ("TA_CMDNONPERSISTHW", "5m"),
            ("TA_RETENTION", -2), ("TA_KEEPEXPIRED", "X"), ("TA_ENQUEUING", "N"), ("TA_ERRORQNAME", "x" * 128),
            ("TA_CMD", "c" * 128),
        ],
    )  # fmt: skip
    def test_a_value_that_is_none_names_its_attribute(self, device, space, name, value):
        refused("TAEINVAL", name, mib.set, device, "T_APPQ", Q | {name: value})

    def test_grouping_is_fixed(self, device, space):
        with pytest.raises(InvalidArgumentError, match="the grouping of queue 'Q' is False and cannot be changed"):
            mib.set(device, "T_APPQ", Q | {"TA_GROUPING": "Y"})

    def test_whether_it_is_for_several_consumers_is_fixed(self, device, space):
        with pytest.raises(InvalidArgumentError, match="of queue 'Q' is False and cannot be changed"):
            mib.set(device, "T_APPQ", Q | {"TA_MULTICONSUMER": "Y"})

    def test_a_change_that_is_refused_leaves_it_started_and_as_it_was(self, device, space):
        before = one(device, "T_APPQ", TA_APPQNAME="Q")
        with pytest.raises(InvalidArgumentError):
            mib.set(device, "T_APPQ", Q | {"TA_ENQUEUING": "STOPPED", "TA_RETENTION": 5, "TA_APPQORDER": "PRIO"})
        assert one(device, "T_APPQ", TA_APPQNAME="Q") == before

    def test_one_of_which_a_message_is_held_is_not_stopped_for_dequeuing_and_nothing_of_it_is_changed(
        self, device, space
    ):
        space.enqueue("Q", "x")
        with space.transaction():
            space.dequeue("Q")
            before = one(device, "T_APPQ", TA_APPQNAME="Q")
            with pytest.raises(InUseError, match="holds a message of queue 'Q'"):
                mib.set(device, "T_APPQ", Q | {"TA_DEQUEUING": "STOPPED", "TA_ENQUEUING": "STOPPED", "TA_RETENTION": 5})
            assert one(device, "T_APPQ", TA_APPQNAME="Q") == before
            assert mib.set(device, "T_APPQ", Q | {"TA_ENQUEUING": "STOPPED"})["TA_DEQUEUING"] == "STARTED"
            before = one(device, "T_APPQ", TA_APPQNAME="Q")
            with pytest.raises(InUseError, match="holds a message of queue 'Q'"):
                mib.set(device, "T_APPQ", Q | {"TA_ENQUEUING": "STARTED", "TA_DEQUEUING": "STOPPED"})
            assert one(device, "T_APPQ", TA_APPQNAME="Q") == before

    def test_the_reason_of_a_refusal_is_told_where_it_cannot_be_started_and_stopped_as_before(
        self, device, space, monkeypatch
    ):
        stop, full = type(space).stop_queue, OperatingSystemError("the disk is full")

        def stop_once(*arguments, **named):
            stop(*arguments, **named)
            monkeypatch.setattr(type(space), "start_queue", fail)

        def fail(*_, **__):
            raise full

        monkeypatch.setattr(type(space), "stop_queue", stop_once)
        with pytest.raises(InvalidArgumentError) as caught:
            mib.set(device, "T_APPQ", Q | {"TA_ENQUEUING": "STOPPED", "TA_APPQORDER": "PRIO"})
        assert caught.value.__cause__ is full

    def test_counters_part_the_persistent_from_the_others(self, device, space):
        for persistent in (True, True, False):
            space.enqueue("Q", "x" * PAGE, persistent=persistent)
        found = one(device, "T_APPQ", TA_APPQNAME="Q")
        assert (found["TA_CURMSG"], found["TA_CURBLOCKS"]) == (2, 4)
        assert (found["TA_CURNONPERSISTMSG"], found["TA_CURNONPERSISTBYTES"]) == (1, 2 * PAGE)

    def test_a_queue_that_is_not_there_is_not_found(self, device, space):
        assert mib.get(device, "T_APPQ", QS | {"TA_APPQNAME": "NONE"}) == []
        for state in ({"TA_MAXRETRIES": 1}, {"TA_STATE": "INV"}):
            with pytest.raises(BadQueueError):
                mib.set(device, "T_APPQ", QS | {"TA_APPQNAME": "NONE"} | state)

    def test_one_with_messages_is_deleted_with_the_flag_only(self, device, space):
        space.enqueue("Q", "x")
        with pytest.raises(InUseError, match="holds 1 message") as refusal:
            mib.set(device, "T_APPQ", Q | {"TA_STATE": "INV"}, mib.QMIB_FORCEDELETE)
        assert "QMIB_FORCEPURGE" in refusal.value.hint
        assert mib.set(device, "T_APPQ", Q | {"TA_STATE": "INV"}, mib.QMIB_FORCEPURGE) == {}
        assert [queue["TA_APPQNAME"] for queue in mib.get(device, "T_APPQ", QS)] == ["E"]

    def test_one_whose_queue_space_others_have_open_is_not_deleted(self, device, space, file_store):
        with file_store.another().open_space("QS"):
            for flags in (0, mib.QMIB_FORCEPURGE):
                with pytest.raises(InUseError, match="is attached") as refusal:
                    mib.set(device, "T_APPQ", Q | {"TA_STATE": "INV"}, flags)
                assert "FORCE" not in refusal.value.hint
