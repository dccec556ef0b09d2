"""The command lines that are remembered."""

import os
import threading

import pytest

from qmadmin.shell import remembered
from qmadmin.shell.remembered import Remembered


@pytest.fixture
def file(tmp_path):
    return tmp_path / "history"


def lines(file):
    """Return what a new session remembers, the oldest first."""
    return list(Remembered(file).load_history_strings())[::-1]


def test_lines_of_all_sessions_are_there_in_their_order(file):
    one, other = Remembered(file), Remembered(file)
    one.append_string("first")
    other.append_string("second")
    one.append_string("third")
    assert lines(file) == ["first", "second", "third"]


def test_line_that_repeats_the_one_before_is_left_out(file):
    one = Remembered(file)
    for line in ("same", "same", "other", "same"):
        one.append_string(line)
    assert lines(file) == ["same", "other", "same"]


@pytest.mark.parametrize("line", ["qset \u2028name", "# comment", "qset 'ä'", "tab\there", "\udc80"])
def test_line_with_anything_in_it_is_one_line(file, line):
    Remembered(file).append_string(line)
    assert lines(file) == [line.replace("\udc80", "?")]


def test_older_half_is_given_up_when_the_file_is_large(file, monkeypatch):
    monkeypatch.setattr(remembered, "_MOST_BYTES", 1000)
    one = Remembered(file)
    every = [f"line {number:03}" for number in range(200)]
    for line in every:
        one.append_string(line)
    kept = lines(file)
    assert kept == every[-len(kept) :]
    assert 40 < len(kept) < 60
    one.append_string("after it")
    assert lines(file) == [*kept, "after it"]


def test_sessions_that_write_at_one_time_lose_nothing(file):
    def write(name):
        one = Remembered(file)
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


def test_file_that_cannot_be_used_is_no_trouble(tmp_path):
    one = Remembered(tmp_path / "no" / "folder")
    one.append_string("line")
    assert one.get_strings() == ["line"]
    assert list(one.load_history_strings()) == []


def test_file_is_for_its_owner_alone(tmp_path):
    made = remembered.history({"XDG_STATE_HOME": str(tmp_path)})
    made.append_string("line")
    file = tmp_path / "qmadmin" / "history"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700 & ~os.umask(os.umask(0))
