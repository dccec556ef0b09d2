"""The command lines that are remembered."""

import fcntl
import os
import threading

import pytest

from qmadmin.shell import terminal
from qmadmin.shell.terminal import HistoryFile


@pytest.fixture
def file(tmp_path):
    return tmp_path / "history"


def lines(file):
    """Return what a new session remembers, the oldest first."""
    return list(HistoryFile(file, 1000).load_history_strings())[::-1]


def test_lines_of_all_sessions_are_there_in_their_order(file):
    one, other = HistoryFile(file, 1000), HistoryFile(file, 1000)
    one.append_string("first")
    other.append_string("second")
    one.append_string("third")
    assert lines(file) == ["first", "second", "third"]


def test_line_that_repeats_the_one_before_is_left_out(file):
    one = HistoryFile(file, 1000)
    for line in ("same", "same", "other", "same"):
        one.append_string(line)
    assert lines(file) == ["same", "other", "same"]


@pytest.mark.parametrize("line", ["qset \u2028name", "# comment", "qset 'ä'", "tab\there", "\udc80"])
def test_line_with_anything_in_it_is_one_line(file, line):
    HistoryFile(file, 1000).append_string(line)
    assert lines(file) == [line.replace("\udc80", "?")]


def test_older_lines_are_given_up_when_there_are_too_many(file):
    one = HistoryFile(file, 50)
    every = [f"line {number:03}" for number in range(120)]
    for line in every:
        one.append_string(line)
    assert list(HistoryFile(file, 50).load_history_strings())[::-1] == every[-50:]
    assert file.read_text().count("\n") == 50
    one.append_string("after it")
    assert lines(file) == [*every[-50:], "after it"]


def test_sessions_that_write_at_one_time_lose_nothing(file):
    def write(name):
        one = HistoryFile(file, 1000)
        for number in range(50):
            one.append_string(f"{name} {number}")

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = lines(file)
    for name in "abcd":
        assert [line for line in found if line.startswith(name)] == [f"{name} {number}" for number in range(50)]


def test_file_is_for_one_session_while_it_is_read_and_shortened(file, monkeypatch):
    one = HistoryFile(file, 1)
    tried = []

    def shorten(opened, text):
        with file.open("ab") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tried.append("it")
        return text

    monkeypatch.setattr(one, "_shorten", shorten)
    for line in "abc":
        one.append_string(line)
    assert list(one.load_history_strings()) == ["c"]
    assert tried == ["it"]


def test_file_that_cannot_be_used_is_no_trouble(tmp_path):
    one = HistoryFile(tmp_path / "no" / "folder", 1000)
    one.append_string("line")
    assert one.get_strings() == ["line"]
    assert list(one.load_history_strings()) == []


def test_file_is_for_its_owner_alone(tmp_path):
    made = terminal.history(str(tmp_path / "qmadmin" / "history"), 1000)
    made.append_string("line")
    file = tmp_path / "qmadmin" / "history"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700 & ~os.umask(os.umask(0))
