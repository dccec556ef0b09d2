"""The log of the programs."""

import io
import json
import logging
import os
import re
import socket
import threading
from datetime import datetime

import pytest

from qmadmin import ulog

NOON = datetime(2025, 3, 9, 12, 0, 1).timestamp()  # noqa: DTZ001 - the log is in local time
LINE = re.compile(r"120001\.(?P<host>[^!]+)!qmtest\.(?P<pid>\d+)\.(?P<thread>\d+): (?P<rest>.*)")


@pytest.fixture
def errors():
    return io.StringIO()


@pytest.fixture
def handler(tmp_path, errors):
    made = ulog.UlogHandler("qmtest", str(tmp_path / "ULOG"), errors=errors)
    yield made
    made.close()


def event(text, *arguments, created=NOON, level=logging.ERROR, exc_info=None, **extra):
    record = logging.LogRecord("qmadmin.test", level, __file__, 1, text, arguments, exc_info)
    record.created = created
    record.__dict__.update(extra)
    return record


def test_file_is_named_by_the_day_and_made_at_the_first_event(handler, tmp_path):
    assert list(tmp_path.iterdir()) == []
    handler.emit(event("first"))
    handler.emit(event("next day", created=NOON + 86400))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ULOG.030925", "ULOG.031025"]


def test_line_names_time_host_program_process_thread_and_catalogue_number(handler, tmp_path):
    handler.emit(event("queue %s is full", "Q1", catalogue=1216))
    handler.emit(event("plain", level=logging.WARNING))
    one, two = (LINE.fullmatch(line) for line in (tmp_path / "ULOG.030925").read_text().splitlines())
    assert one["host"] == socket.gethostname()
    assert int(one["pid"]) == os.getpid()
    assert int(one["thread"]) == threading.get_native_id()
    assert one["rest"] == "QM_CAT:1216: ERROR: queue Q1 is full"
    assert two["rest"] == "WARN: plain"


def test_event_with_a_traceback_is_one_line(handler, tmp_path):
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        handler.emit(event("fault", exc_info=(ValueError, error, error.__traceback__)))
    (line,) = (tmp_path / "ULOG.030925").read_text().splitlines()
    assert "ERROR: fault | Traceback (most recent call last): | " in line
    assert line.endswith("ValueError: two | lines")


def test_json_has_the_same_facts(tmp_path):
    handler = ulog.UlogHandler("qmtest", str(tmp_path / "ULOG"), as_json=True)
    handler.emit(event("queue %s is full", "Q\n1", catalogue=1216))
    handler.close()
    facts = json.loads((tmp_path / "ULOG.030925").read_text())
    assert (facts["program"], facts["pid"], facts["level"], facts["catalogue"], facts["logger"], facts["text"]) == (
        "qmtest",
        os.getpid(),
        "ERROR",
        1216,
        "qmadmin.test",
        "queue Q\n1 is full",
    )
    assert datetime.fromisoformat(facts["time"]).timestamp() == NOON


def test_log_that_cannot_be_written_is_one_warning_and_no_failure(tmp_path, errors):
    handler = ulog.UlogHandler("qmtest", str(tmp_path / "none" / "ULOG"), errors=errors)
    handler.emit(event("one"))
    handler.emit(event("two"))
    assert errors.getvalue() == (
        f"WARN: the log {tmp_path}/none/ULOG.030925 cannot be written: No such file or directory\n"
    )
    (tmp_path / "none").mkdir()
    handler.emit(event("three"))
    handler.close()
    assert (tmp_path / "none" / "ULOG.030925").read_text().endswith("ERROR: three\n")


def test_programs_that_share_a_file_append_to_it(handler, tmp_path, errors):
    other = ulog.UlogHandler("other", str(tmp_path / "ULOG"), errors=errors)
    for number in range(3):
        handler.emit(event(f"ours {number}"))
        other.emit(event(f"theirs {number}"))
    other.close()
    assert len((tmp_path / "ULOG.030925").read_text().splitlines()) == 6


def test_bytes_that_are_no_text_are_escaped(handler, tmp_path):
    handler.emit(event("name \udcff"))
    assert r"name \udcff" in (tmp_path / "ULOG.030925").read_text()


def test_installed_log_takes_what_the_library_says_from_its_level_up(tmp_path):
    logger = logging.getLogger("qmadmin")
    before = (logger.level, list(logger.handlers))
    handler = ulog.install("qmtest", {"ULOGPFX": str(tmp_path / "LOG")}, level=logging.WARNING)
    try:
        logging.getLogger("qmadmin.engine").info("unheard")
        logging.getLogger("qmadmin.engine").warning("heard")
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.setLevel(before[0])
    (log,) = tmp_path.iterdir()
    assert log.name.startswith("LOG.")
    assert "unheard" not in log.read_text()
    assert log.read_text().endswith(" WARN: heard\n")
