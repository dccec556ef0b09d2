"""The management information base as a command: words in, one JSON document out."""

import io
import json

import pytest

from qmadmin import mib
from qmadmin.mib import requests
from qmcore.errors import (
    OperatingSystemError,
)
from tests.fix_mib import QS


@pytest.fixture
def device(mib_device):
    return mib_device


@pytest.fixture
def space(mib_space):
    return mib_space


class TestCommand:
    def run(self, device, *words):
        out = io.StringIO()
        status = requests.run(device.path, words, out)
        return status, json.loads(out.getvalue())

    def test_get_is_what_is_done_where_nothing_is_said(self, device, space):
        for words in (["T_APPQ", "TA_APPQSPACENAME=QS"], ["T_APPQ", "get", "TA_APPQSPACENAME=QS"]):
            status, told = self.run(device, *words)
            assert (status, told["class"], told["operation"]) == (0, "T_APPQ", "get")
            assert told["objects"] == mib.get(device, "T_APPQ", QS)
            assert "error" not in told
        assert self.run(device, "T_APPQTRANS", "TA_APPQSPACENAME=QS")[1]["objects"] == []

    def test_messages_that_are_damaged_and_left_out_are_told(self, device, space, file_store):
        asked = ["T_APPQMSG", "TA_APPQSPACENAME=QS", "TA_APPQNAME=Q"]
        for body in "ab":
            space.enqueue("Q", body)
        assert "warnings" not in self.run(device, *asked)[1]
        file_store.by_hand("UPDATE message SET headers = 'not JSON' WHERE id = (SELECT min(id) FROM message)")
        status, told = self.run(device, *asked)
        assert (status, len(told["objects"])) == (0, 1)
        (warning,) = told["warnings"]
        assert warning.startswith("1 message of queue 'Q' is damaged and left out. Look for damage with qcheck")

    def test_set_reads_numbers_where_the_attribute_is_one(self, device, space):
        words = ["T_APPQ", "set", "TA_APPQSPACENAME=QS", "TA_APPQNAME=Q"]
        status, told = self.run(device, *words, "TA_MAXRETRIES=7", "TA_CMD=a=b")
        assert status == 0
        assert [(found["TA_MAXRETRIES"], found["TA_CMD"]) for found in told["objects"]] == [(7, "a=b")]

    @pytest.mark.parametrize("flags", ["QMIB_FORCEPURGE", "0x40000", "262144", "QMIB_FORCEPURGE|QMIB_FORCECLOSE"])
    def test_flags_are_names_or_a_number(self, device, space, flags):
        space.enqueue("Q", "x")
        space.close()
        words = ["T_APPQ", "set", "TA_APPQSPACENAME=QS", "TA_APPQNAME=Q", "TA_STATE=INV"]
        status, told = self.run(device, *words)
        assert (status, told["error"]["code"], told["error"]["attribute"]) == (1, "QMEINUSE", None)
        status, told = self.run(device, *words, f"TA_FLAGS={flags}")
        assert (status, told["objects"]) == (0, [])

    def test_what_fails_inside_is_a_document_all_the_same(self, device, space, monkeypatch):
        def fail(*_, **_named):
            raise LookupError("secret")

        monkeypatch.setattr(requests, "stream", fail)
        status, told = self.run(device, "T_APPQ", "TA_APPQSPACENAME=QS")
        assert (status, told["objects"], told["error"]["code"]) == (1, [], "QMESYSTEM")
        assert told["error"]["message"] == "failed inside qmadmin: LookupError"

    def test_what_is_refused_says_why_and_which_attribute(self, device, space):
        status, told = self.run(device, "T_APPQ", "set", "TA_APPQSPACENAME=QS", "TA_APPQNAME=Q", "TA_MAXRETRIES=x")
        assert status == 1
        assert told["objects"] == []
        assert (told["error"]["code"], told["error"]["attribute"]) == ("TAEINVAL", "TA_MAXRETRIES")
        assert "'x'" in told["error"]["message"]

    def test_what_goes_wrong_on_the_way_leaves_a_whole_document(self, device, space, monkeypatch):
        space.enqueue("Q", "x")

        def failing(*_given, **_more):
            raise OperatingSystemError("the disk is gone")

        monkeypatch.setattr("qmadmin.space.QueueSpace.messages", failing)
        status, told = self.run(device, "T_APPQMSG", "TA_APPQSPACENAME=QS")
        assert (status, told["objects"], told["error"]["code"]) == (1, [], "QMEOS")

    def test_a_device_that_is_not_there(self, device, tmp_path):
        out = io.StringIO()
        assert requests.run(str(tmp_path / "NONE"), ["T_APPQSPACE"], out) == 1
        assert json.loads(out.getvalue())["error"]["code"] == "QMEBADRMID"

    @pytest.mark.parametrize(
        "words",
        [
            [], ["T_SERVER"], ["T_APPQ", "put"], ["T_APPQ", "get", "TA_X"], ["T_APPQ", "=x"],
            ["T_APPQ", "TA_APPQNAME=a", "TA_APPQNAME=b"], ["T_APPQ", "set", "TA_FLAGS=QMIB_X"],
            ["T_APPQ", "set", "TA_FLAGS=1x"],
        ],
    )  # fmt: skip
    def test_words_that_make_no_request(self, device, words):
        status, told = self.run(device, *words)
        assert (status, told["error"]["code"]) == (2, "USAGE")

    @pytest.mark.parametrize("name", mib.CLASSES)
    def test_help_tells_what_a_class_consists_of(self, device, name):
        assert self.run(device, name, "help") == (0, mib.describe(name))

    def test_objects_are_written_as_they_come(self, device, space):
        for _ in range(3):
            space.enqueue("Q", "x")

        class Out(io.StringIO):
            def write(self, text):
                space.purge("Q")
                return super().write(text)

        out = Out()
        assert requests.run(device.path, ["T_APPQMSG", "TA_APPQSPACENAME=QS"], out) == 0
        assert json.loads(out.getvalue())["objects"] == []
