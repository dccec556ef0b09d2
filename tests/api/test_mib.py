"""The management information base: what a request may be, and what the classes declare."""

import os
import pickle
import re

import pytest

import qmadmin
from qmadmin import mib
from qmadmin.mib.declare import Mark
from qmadmin.opening import open_device
from qmcore.errors import (
    BadResourceError,
    OperatingSystemError,
)
from tests.fix_mib import QS, Q, one, refused


@pytest.fixture
def device(mib_device):
    return mib_device


@pytest.fixture
def space(mib_space):
    return mib_space


class TestRequests:
    def test_it_is_part_of_the_package(self):
        assert qmadmin.mib is mib
        assert "mib" in dir(qmadmin)

    @pytest.mark.parametrize("request_", [mib.get, mib.set])
    def test_a_class_that_does_not_exist(self, device, request_):
        assert "T_APPQ" in refused("TAEINVAL", "TA_CLASS", request_, device, "T_SERVER", {}).hint

    @pytest.mark.parametrize("request_", [mib.get, mib.set])
    @pytest.mark.parametrize("name", mib.CLASSES)
    def test_an_attribute_that_the_class_does_not_have(self, device, request_, name):
        refused("TAEINVAL", "TA_SRVID", request_, device, name, QS | {"TA_SRVID": 1})

    def test_an_attribute_with_a_slip_is_recognized(self, device):
        error = refused("TAEINVAL", "TA_MAXMSGS", mib.set, device, "T_APPQSPACE", QS | {"TA_MAXMSGS": 1})
        assert error.hint == "Perhaps TA_MAXMSG is meant."

    @pytest.mark.parametrize(
        ("name", "value"),
        [("TA_MAXMSG", "10"), ("TA_MAXMSG", True), ("TA_MAXMSG", 1.0), ("TA_ERRORQNAME", 1), ("TA_ERRORQNAME", b"E")],
    )
    def test_a_value_of_another_type(self, device, name, value):
        refused("TAEINVAL", name, mib.set, device, "T_APPQSPACE", QS | {name: value})

    @pytest.mark.parametrize("request_", [mib.get, mib.set])
    @pytest.mark.parametrize("name", mib.CLASSES)
    def test_the_machine_must_be_left_out(self, device, request_, name):
        refused("TAESUPPORT", "TA_LMID", request_, device, name, QS | {"TA_LMID": "SITE1"})

    def test_a_device_may_be_named_if_it_is_the_one_that_is_asked(self, device, space, tmp_path):
        assert one(device, "T_APPQSPACE", TA_QMCONFIG=device.path)["TA_QMCONFIG"] == device.path
        for where in (device, device.path):
            refused("TAEINVAL", "TA_QMCONFIG", mib.get, where, "T_APPQ", Q | {"TA_QMCONFIG": str(tmp_path / "OTHER")})

    @pytest.mark.parametrize("name", mib.CLASSES)
    def test_every_attribute_that_is_no_key_selects_nothing(self, device, space, name):
        known = mib.CLASSES[name]
        for attribute in known.attributes:
            if Mark.KEY not in attribute.marks and attribute.name != "TA_LMID":
                value = "x" if attribute.kind.value == "string" else 1
                refused("TAEINVAL", attribute.name, mib.get, device, name, QS | {attribute.name: value})

    @pytest.mark.parametrize("name", ["T_APPQ", "T_APPQMSG", "T_APPQTRANS"])
    def test_what_is_in_a_queue_space_needs_its_name(self, device, space, name):
        refused("TAEREQUIRED", "TA_APPQSPACENAME", mib.get, device, name)
        with pytest.raises(BadResourceError):
            mib.get(device, name, {"TA_APPQSPACENAME": "NONE"})

    @pytest.mark.parametrize("name", mib.CLASSES)
    def test_every_key_of_a_set_is_needed(self, device, space, name):
        keys = {attribute.name: "x" for attribute in mib.CLASSES[name].marked(Mark.SET_KEY)}
        state = next(iter(mib.CLASSES[name].meanings))
        for key in keys:
            given = {other: value for other, value in keys.items() if other != key}
            refused("TAEREQUIRED", key, mib.set, device, name, given | {"TA_STATE": state})

    @pytest.mark.parametrize("name", mib.CLASSES)
    def test_what_can_only_be_read_cannot_be_set(self, device, space, name):
        known = mib.CLASSES[name]
        ids = {"TA_APPQMSGID": "0" * 32, "TA_XID": "0"}
        keys = {one.name: ids.get(one.name, "QS") for one in known.marked(Mark.SET_KEY)}
        for attribute in known.attributes:
            if attribute.writable or attribute.name in (*keys, "TA_LMID", "TA_QMCONFIG", "TA_STATE"):
                continue
            value = "x" if attribute.kind.value == "string" else 1
            state = {} if "" in known.actions else {"TA_STATE": "HAB"}
            refused("TAEPERM", attribute.name, mib.set, device, name, keys | state | {attribute.name: value})

    @pytest.mark.parametrize("name", mib.CLASSES)
    @pytest.mark.parametrize("state", ["XYZ", "VAL", "ACT", "NEWER", "CLEA"])
    def test_a_state_that_cannot_be_set(self, device, space, name, state):
        error = refused("TAEINVAL", "TA_STATE", mib.set, device, name, QS | {"TA_STATE": state})
        assert all(word in error.hint for word in mib.CLASSES[name].meanings)

    def test_a_state_may_be_written_in_full_and_in_any_case(self, device, space):
        for state in ("CLEaning", "cle", "CLEANING", "OPEn"):
            mib.set(device, "T_APPQSPACE", QS | {"TA_STATE": state}, mib.QMIB_FORCECLOSE)

    @pytest.mark.parametrize("state", ["INV", "OPE", "CLE"])
    def test_with_another_state_nothing_else_can_be_set(self, device, space, state):
        refused("TAEINVAL", "TA_MAXMSG", mib.set, device, "T_APPQSPACE", QS | {"TA_STATE": state, "TA_MAXMSG": 1})

    @pytest.mark.parametrize("flags", [1, 0x100000, -1])
    def test_flags_that_do_not_exist(self, device, space, flags):
        refused("TAEINVAL", "TA_FLAGS", mib.set, device, "T_APPQ", Q | {"TA_STATE": "INV"}, flags)

    def test_flags_have_the_values_of_tuxedo(self):
        assert (mib.QMIB_FORCECLOSE, mib.QMIB_FORCEPURGE, mib.QMIB_FORCEDELETE) == (0x20000, 0x40000, 0x80000)

    def test_a_path_will_do_for_a_device(self, device, space):
        assert [queue["TA_APPQNAME"] for queue in mib.get(device.path, "T_APPQ", QS)] == ["E", "Q"]
        assert mib.set(device.path, "T_APPQ", Q | {"TA_MAXRETRIES": 9})["TA_MAXRETRIES"] == 9
        with pytest.raises(BadResourceError):
            mib.get(device.path + "X", "T_APPQSPACE")

    def test_an_error_travels_between_processes(self):
        error = mib.MibError(mib.Code.TAEINVAL, "TA_X", "a sentence", hint="a hint")
        again = pickle.loads(pickle.dumps(error))
        assert (again.code, again.attribute, again.message, again.hint, str(again)) == (
            error.code, "TA_X", "a sentence", "a hint", "a sentence",
        )  # fmt: skip


class TestDeclarations:
    @pytest.mark.parametrize("name", mib.CLASSES)
    def test_each_attribute_is_declared_once_and_described(self, name):
        told = mib.describe(name)
        names = [attribute["name"] for attribute in told["attributes"]]
        assert len(set(names)) == len(names)
        for attribute in told["attributes"]:
            assert re.fullmatch(r"TA_[A-Z]+", attribute["name"])
            assert attribute["about"].endswith(".")
            assert attribute["values"]
        assert told["states"]
        assert set(told["set"]) == {state for state in mib.CLASSES[name].actions if state}

    @pytest.mark.parametrize("name", mib.CLASSES)
    def test_what_can_be_set_says_what_it_sets(self, name):
        for attribute in mib.CLASSES[name].attributes:
            if attribute.writable and attribute.name != "TA_STATE":
                assert attribute.field

    def test_values_are_told_only_by_attributes_that_may_be_read(self):
        for known in mib.CLASSES.values():
            for attribute in known.attributes:
                if attribute.get is not None:
                    assert attribute.permissions[0].lower() == "r"


class TestTransactions:
    @pytest.fixture
    def xid(self, device, space):
        space.enqueue("Q", "x")
        with space.transaction() as tx:
            space.dequeue("Q")
            yield one(device, "T_APPQTRANS")["TA_XID"]
            tx.rollback()

    def test_those_that_are_open_are_listed(self, device, space, xid):
        assert mib.get(device, "T_APPQTRANS", QS | {"TA_XID": xid}) == [
            QS
            | {"TA_XID": xid, "TA_QMCONFIG": device.path, "TA_STATE": "ACT", "TA_OWNERALIVE": "Y"}
            | {"TA_TRANOWNER": f"application {os.getpid()} on {os.uname().nodename}"}
        ]
        assert mib.get(device, "T_APPQTRANS", QS | {"TA_XID": "other"}) == []

    def test_none_is_listed_where_none_is_open(self, device, space):
        assert mib.get(device, "T_APPQTRANS", QS) == []

    @pytest.mark.parametrize("state", ["HAB", "HCO"])
    def test_what_is_not_prepared_has_no_heuristic_end(self, device, space, xid, state):
        error = refused(
            "TAESUPPORT", "TA_STATE", mib.set, device, "T_APPQTRANS", QS | {"TA_XID": xid, "TA_STATE": state}
        )
        assert f"transaction {xid} is active and not prepared" in error.message
        assert len(mib.get(device, "T_APPQTRANS", QS)) == 1

    @pytest.fixture
    def prepared(self, device, space):
        """The branch 7:67:62 of a process that has gone."""
        with open_device(device.path) as other, other.open_space("QS", role="coordinator") as coordinator:
            coordinator.tpc_begin((7, "g", "b"))
            coordinator.enqueue("Q", "x")
            coordinator.tpc_prepare()
        return one(device, "T_APPQTRANS")["TA_XID"]

    def test_a_prepared_one_is_told_with_its_coordinators_identifier_and_whose_it_was(self, device, space, prepared):
        found = one(device, "T_APPQTRANS")
        assert (found["TA_STATE"], found["TA_XOPENXID"], found["TA_OWNERALIVE"]) == ("REA", "7:67:62", "N")
        assert found["TA_TRANOWNER"] == f"coordinator {os.getpid()} on {os.uname().nodename}"
        assert len(found["TA_PREPARETIME"]) > len("2026-01-01")
        assert not {"TA_ENDTIME", "TA_ENDEDBY"} & found.keys()
        assert mib.get(device, "T_APPQTRANS", QS | {"TA_XOPENXID": "7:67:62"}) == [found]
        assert mib.get(device, "T_APPQTRANS", QS | {"TA_XOPENXID": "7:67:63"}) == []

    @pytest.mark.parametrize(("state", "messages"), [("HAB", 0), ("HCO", 1)])
    def test_a_prepared_one_is_ended_heuristically_once(self, device, space, prepared, state, messages):
        asked = QS | {"TA_XID": prepared, "TA_STATE": state}
        found = mib.set(device, "T_APPQTRANS", asked)
        assert (found["TA_STATE"], found["TA_XOPENXID"]) == (state, "7:67:62")
        assert re.fullmatch(rf"\w+ \(application {os.getpid()} on {os.uname().nodename}\)", found["TA_ENDEDBY"])
        assert found["TA_ENDTIME"] >= found["TA_PREPARETIME"]
        assert one(device, "T_APPQTRANS") == found
        assert space.usage("Q").messages == messages
        error = refused("TAESUPPORT", "TA_STATE", mib.set, device, "T_APPQTRANS", asked)
        assert f"transaction {prepared} is heuristic " in error.message
        space.tpc_forget("7:67:62")
        assert mib.get(device, "T_APPQTRANS", QS) == []

    def test_one_that_is_gone_is_named(self, device, space):
        refused("TAEINVAL", "TA_XID", mib.set, device, "T_APPQTRANS", QS | {"TA_XID": "77", "TA_STATE": "HAB"})

    def test_nothing_about_it_can_be_changed(self, device, space, xid):
        refused("TAEINVAL", "TA_STATE", mib.set, device, "T_APPQTRANS", QS | {"TA_XID": xid})


class TestReadOnly:
    def test_a_device_that_can_only_be_read_is_looked_at_and_not_changed(self, device, space, file_store, monkeypatch):
        space.enqueue("Q", "x")
        monkeypatch.setattr("qmstorage.sqlite.opening.os.access", lambda path, mode: mode == os.R_OK)
        with open_device(device.path, clock=file_store.clock) as reader:
            assert reader.readonly
            assert [found["TA_CURMSG"] for found in mib.get(reader, "T_APPQ", QS)] == [0, 1]
            assert len(mib.get(reader, "T_APPQMSG", Q)) == 1
            assert one(reader, "T_APPQSPACE")["TA_STATE"] == "ACT"
            with pytest.raises(OperatingSystemError):
                mib.set(reader, "T_APPQ", Q | {"TA_MAXRETRIES": 1})
