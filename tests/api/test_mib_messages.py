"""The management information base: messages."""

from datetime import datetime, timedelta

import pytest

from qmadmin import mib
from qmcore.errors import (
    BadMessageIdError,
    BadQueueError,
    InUseError,
)
from tests.fix_mib import QS, Q, one, refused
from tests.fix_store import make_queue


@pytest.fixture
def device(mib_device):
    return mib_device


@pytest.fixture
def space(mib_space):
    return mib_space


class TestMessages:
    @pytest.fixture
    def messages(self, space, clock):
        """Messages of a queue of each order, with all that can be asked for."""
        make_queue(space, "ALL", order="priority,time,expiration")
        ids = {}
        for at, (persistent, corrid) in enumerate([(True, "one"), (False, "two words"), (True, b"\xff\0\\")]):
            reply = (None, True, False)[at]
            how = {"persistent": persistent, "corrid": corrid, "reply_persistent": reply}
            ids[at] = space.enqueue("ALL", b"x" * at, priority=10 * (at + 1), **how)
        return ids

    def listed(self, device, **keys):
        return [found["TA_MSGSIZE"] for found in mib.get(device, "T_APPQMSG", QS | {"TA_APPQNAME": "ALL"} | keys)]

    def test_what_is_told_of_a_message(self, device, space, messages):
        first, second, third = sorted(
            mib.get(device, "T_APPQMSG", QS | {"TA_APPQNAME": "ALL"}), key=lambda found: found["TA_MSGSIZE"]
        )
        assert first == {
            "TA_APPQMSGID": messages[0], "TA_APPQNAME": "ALL", "TA_APPQSPACENAME": "QS", "TA_QMCONFIG": device.path,
            "TA_STATE": "VAL", "TA_PRIORITY": 10, "TA_TIME": "", "TA_EXPIRETIME": "", "TA_CORRID": "one",
            "TA_PERSISTENCE": "PERSIST", "TA_REPLYPERSISTENCE": "DEFAULT", "TA_CURRETRIES": 0, "TA_MSGSIZE": 0,
            "TA_PERSISTENCEASKED": "PERSIST", "TA_MSGSTATE": "READY", "TA_ENQUEUETIME": first["TA_ENQUEUETIME"],
            "TA_REPLYQNAME": "", "TA_FAILUREQNAME": "", "TA_ERRORQNAME": "", "TA_URCODE": 0, "TA_APPKEY": 0,
            "TA_CLTID": "", "TA_MSGTYPE": "CARRAY", "TA_MSGSUBTYPE": "", "TA_HEADERS": "{}", "TA_GROUPMSGID": "",
            "TA_ORIGINQNAME": "", "TA_ORIGINMSGID": "", "TA_FIRSTMSGID": "", "TA_ORIGINREASON": "",
            "TA_ORIGINERROR": "", "TA_MOVETIME": "",
        }  # fmt: skip
        assert (second["TA_CORRID"], second["TA_PERSISTENCE"]) == ("two\\20words", "NONPERSIST")
        assert (second["TA_REPLYPERSISTENCE"], third["TA_REPLYPERSISTENCE"]) == ("PERSIST", "NONPERSIST")
        assert third["TA_CORRID"] == "\\ff\\00\\5c"

    def test_priority_and_time_are_told_where_the_queue_is_ordered_by_them(self, device, space, clock):
        make_queue(space, "ALL", order="priority,time")
        when = clock.moment(3_600)
        for queue in ("Q", "ALL"):
            space.enqueue(queue, "x", priority=7, available_at=when, expires_at=when + timedelta(days=1))
        local = when.astimezone()
        shown = {
            found["TA_APPQNAME"]: (found["TA_PRIORITY"], found["TA_TIME"], found["TA_EXPIRETIME"])
            for found in mib.get(device, "T_APPQMSG", QS)
        }
        expires = (local + timedelta(days=1)).strftime("%y%m%d%H%M%S")
        assert shown == {"Q": (-1, "", expires), "ALL": (7, local.strftime("%y%m%d%H%M%S"), expires)}

    def test_without_a_queue_the_messages_of_all_are_given(self, device, space, messages):
        space.enqueue("Q", "x")
        found = mib.get(device, "T_APPQMSG", QS)
        assert [message["TA_APPQNAME"] for message in found] == ["ALL"] * 3 + ["Q"]
        with pytest.raises(BadQueueError):
            mib.get(device, "T_APPQMSG", QS | {"TA_APPQNAME": "NONE"})

    def test_retries_are_counted(self, device, space):
        space.enqueue("Q", "x")
        with space.transaction() as tx:
            space.dequeue("Q")
            tx.rollback()
        assert one(device, "T_APPQMSG")["TA_CURRETRIES"] == 1

    def test_keys_select(self, device, space, messages):
        assert self.listed(device, TA_APPQMSGID=messages[1].upper()) == [1]
        refused("TAEINVAL", "TA_CORRID", lambda: self.listed(device, TA_CORRID="a\\x"))
        assert self.listed(device, TA_CORRID="two\\20words") == self.listed(device, TA_CORRID="two words") == [1]
        assert self.listed(device, TA_CORRID="\\ff\\00\\5C") == [2]
        assert sorted(self.listed(device, TA_PERSISTENCE="PERSIST")) == [0, 2]
        assert self.listed(device, TA_PERSISTENCE="nonpersist") == [1]
        assert self.listed(device, TA_LOWPRIORITY=20) == [2, 1]
        assert self.listed(device, TA_HIGHPRIORITY=20) == [1, 0]
        assert self.listed(device, TA_LOWPRIORITY=11, TA_HIGHPRIORITY=29) == [1]
        assert self.listed(device, TA_LOWPRIORITY=11, TA_HIGHPRIORITY=29, TA_PERSISTENCE="PERSIST") == []

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("TA_LOWPRIORITY", 0), ("TA_HIGHPRIORITY", 101), ("TA_PERSISTENCE", "DEFAULT"), ("TA_CORRID", "x" * 33),
            ("TA_MSGSTARTTIME", "+5"), ("TA_MSGENDTIME", "NONE"), ("TA_MSGEXPIRESTARTTIME", "99"[:1]),
            ("TA_MSGEXPIREENDTIME", "never"),
        ],
    )  # fmt: skip
    def test_a_filter_that_is_none_names_its_attribute(self, device, space, name, value):
        refused("TAEINVAL", name, mib.get, device, "T_APPQMSG", Q | {name: value})

    def test_a_malformed_identifier_is_refused_by_the_engine(self, device, space):
        with pytest.raises(BadMessageIdError):
            mib.get(device, "T_APPQMSG", Q | {"TA_APPQMSGID": "x"})

    @staticmethod
    def written(moment):
        return moment.astimezone().strftime("%y%m%d%H%M%S")

    def test_windows_of_availability_are_inclusive(self, device, space, clock):
        make_queue(space, "ALL")
        moments = [clock.moment(seconds) for seconds in (0, 100, 200)]
        space.enqueue("ALL", b"")
        for at in (1, 2):
            space.enqueue("ALL", b"x" * at, available_at=moments[at])
        assert self.listed(device, TA_MSGSTARTTIME=self.written(moments[1])) == [1, 2]
        assert self.listed(device, TA_MSGENDTIME=self.written(moments[1])) == [0, 1]
        assert self.listed(
            device, TA_MSGSTARTTIME=self.written(moments[0]), TA_MSGENDTIME=self.written(moments[0])
        ) == [0]
        assert self.listed(device, TA_MSGSTARTTIME="37", TA_MSGENDTIME="3701") == []

    def test_windows_of_expiry_are_inclusive(self, device, space, clock):
        make_queue(space, "ALL")
        moments = [None, clock.moment(100), clock.moment(200)]
        for at in (0, 1, 2):
            space.enqueue("ALL", b"x" * at, expires_at=moments[at])
        first, second = self.written(moments[1]), self.written(moments[2])
        assert self.listed(device, TA_MSGEXPIRESTARTTIME=first) == [1, 2]
        assert self.listed(device, TA_MSGEXPIRESTARTTIME=second) == [2]
        assert self.listed(device, TA_MSGEXPIREENDTIME=first) == [1]
        assert self.listed(device, TA_MSGEXPIRESTARTTIME=first, TA_MSGEXPIREENDTIME=first) == [1]
        assert self.listed(device, TA_MSGEXPIRESTARTTIME=second, TA_MSGEXPIREENDTIME="none") == [0, 2]
        assert self.listed(device, TA_MSGEXPIREENDTIME="NONE") == [0, 1, 2]

    def test_a_stream_is_read_as_far_as_it_is_wanted(self, device, space, monkeypatch):
        from qmcore.acts import looking

        for _ in range(30):
            space.enqueue("Q", "x")
        space.close()
        asked = []
        listing = looking.listing
        monkeypatch.setattr("qmadmin.managing_messages._AT_A_TIME", 10)
        monkeypatch.setattr(looking, "listing", lambda *given: asked.append(given) or listing(*given))
        stream = mib.stream(device, "T_APPQMSG", Q)
        assert asked == []
        for _ in range(5):
            next(stream)
        assert 1 <= len(asked) <= 3
        assert [process.role for process in device.attached("QS")] == ["MIB"]
        stream.close()
        assert device.attached("QS") == []

    def test_a_stream_is_checked_when_it_is_asked_for(self, device, space):
        refused("TAEINVAL", "TA_LOWPRIORITY", mib.stream, device, "T_APPQMSG", Q | {"TA_LOWPRIORITY": 0})

    def change(self, device, msgid, **values):
        return mib.set(device, "T_APPQMSG", QS | {"TA_APPQNAME": "ALL", "TA_APPQMSGID": msgid} | values)

    def test_priority_time_and_expiry_of_one_message(self, device, space, messages, clock):
        given = self.change(device, messages[0], TA_PRIORITY=99, TA_TIME="3601010000", TA_EXPIRETIME="+60")
        expected = (99, "360101000000", self.written(clock.moment(60)))
        assert (given["TA_PRIORITY"], given["TA_TIME"], given["TA_EXPIRETIME"]) == expected
        (info,) = space.messages("ALL", condition="priority = 99")
        assert (info.available_at, info.expires_at) == (datetime(2036, 1, 1).astimezone(), clock.moment(60))
        given = self.change(device, messages[0], TA_TIME="+0", TA_EXPIRETIME="none")
        assert (given["TA_TIME"], given["TA_EXPIRETIME"]) == (self.written(clock.moment()), "")
        assert sorted(message["TA_PRIORITY"] for message in mib.get(device, "T_APPQMSG", QS)) == [20, 30, 99]

    def test_one_message_is_moved_and_has_another_identifier(self, device, space, messages):
        given = self.change(device, messages[1], TA_NEWAPPQNAME="E", TA_PRIORITY=3)
        assert (given["TA_APPQNAME"], given["TA_PERSISTENCE"]) == ("E", "NONPERSIST")
        assert given["TA_APPQMSGID"] != messages[1]
        (info,) = space.messages("E")
        assert (info.msgid, info.origin.msgid, info.priority) == (given["TA_APPQMSGID"], messages[1], 3)
        assert sorted(self.listed(device)) == [0, 2]

    def test_where_the_new_queue_is_missing_nothing_is_changed(self, device, space, messages):
        with pytest.raises(BadQueueError):
            self.change(device, messages[0], TA_PRIORITY=1, TA_NEWAPPQNAME="NONE")
        assert [info.priority for info in space.messages("ALL", condition=f"msgid = '{messages[0]}'")] == [10]

    def test_one_message_is_deleted(self, device, space, messages):
        assert self.change(device, messages[1], TA_STATE="INV") == {}
        assert sorted(self.listed(device)) == [0, 2]
        with pytest.raises(BadMessageIdError, match=messages[1]):
            self.change(device, messages[1], TA_STATE="INV")

    @pytest.mark.parametrize("change", [{"TA_STATE": "INV"}, {"TA_PRIORITY": 5}, {"TA_NEWAPPQNAME": "E"}])
    def test_a_message_in_a_transaction_is_left_alone(self, device, space, messages, change):
        with space.transaction():
            held = space.dequeue("ALL")
            with pytest.raises(InUseError, match=held.msgid):
                self.change(device, held.msgid, **change)
        with pytest.raises(BadMessageIdError):
            self.change(device, held.msgid, **change)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("TA_PRIORITY", 0), ("TA_PRIORITY", 101), ("TA_TIME", "soon"), ("TA_TIME", "50"), ("TA_TIME", "NONE"),
         ("TA_EXPIRETIME", "+-1")],
    )  # fmt: skip
    def test_a_value_that_is_none_names_its_attribute(self, device, space, messages, name, value):
        refused("TAEINVAL", name, self.change, device, messages[0], **{name: value})

    def test_new_messages_are_not_made_here(self, device, space):
        refused("TAEINVAL", "TA_STATE", self.change, device, "0" * 32, TA_STATE="NEW")
