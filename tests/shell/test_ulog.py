"""The log of the programs."""

import io
import json
import logging
import os
import re
import socket
import sys
import threading
import time
from datetime import UTC, datetime

import pytest

from qmadmin import ulog
from qmadmin.configuration import Configuration

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


@pytest.mark.parametrize("stream", ["closed", "none"])
def test_warning_that_nobody_can_be_told_of_is_no_failure(tmp_path, monkeypatch, capsys, stream):
    errors = io.StringIO()
    errors.close()
    monkeypatch.setattr(sys, "stderr", None)
    handler = ulog.UlogHandler("qmtest", str(tmp_path / "none" / "ULOG"), errors=errors if stream == "closed" else None)
    handler.emit(event("one"))
    assert capsys.readouterr().out == ""


def test_event_that_cannot_be_put_into_words_is_no_failure(handler, tmp_path, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    handler.emit(event("%d messages", "some"))
    handler.emit(event("next"))
    assert (tmp_path / "ULOG.030925").read_text().endswith(" ERROR: next\n")
    assert (tmp_path / "ULOG.030925").read_text().count("\n") == 1


@pytest.mark.parametrize("rotated", ["moved", "moved, and a new one made", "removed"])
def test_a_file_that_was_rotated_away_is_begun_again_with_the_next_event(handler, tmp_path, rotated):
    log, old = tmp_path / "ULOG.030925", tmp_path / "old"
    handler.emit(event("before"))
    if rotated == "removed":
        log.unlink()
    else:
        log.rename(old)
    if rotated == "moved, and a new one made":
        log.touch()
    handler.emit(event("after"))
    handler.emit(event("later"))
    assert [line.rpartition(": ")[2] for line in log.read_text().splitlines()] == ["after", "later"]
    if old.exists():
        assert old.read_text().endswith("before\n")


def test_a_file_that_was_emptied_goes_on(handler, tmp_path):
    handler.emit(event("before"))
    os.truncate(tmp_path / "ULOG.030925", 0)
    handler.emit(event("after"))
    assert (tmp_path / "ULOG.030925").read_text().startswith("120001.")


def test_only_its_user_can_read_it_whatever_the_umask_says(handler, tmp_path):
    before = os.umask(0o002)
    try:
        handler.emit(event("may quote a message"))
    finally:
        os.umask(before)
    assert (tmp_path / "ULOG.030925").stat().st_mode & 0o777 == 0o600


def test_what_senders_say_drives_no_terminal(handler, tmp_path):
    handler.emit(event("cannot read x\x1b[2J\x1b]0;title\x07\x9b31m\x7f\t\u202eGrüße\r\nsecond \x1b"))
    text = (tmp_path / "ULOG.030925").read_text(encoding="utf-8")
    assert text.endswith(
        r"cannot read x\x1b[2J\x1b]0;title\x07\x9b31m\x7f" + "\t" + r"\u202eGrüße | second \x1b" + "\n"
    )


@pytest.mark.parametrize("named", [True, False])
def test_a_mistyped_name_makes_no_file_where_nobody_has_said_where_the_log_is(tmp_path, named):
    handler = ulog.UlogHandler("qmtest", str(tmp_path / "ULOG"), named=named)
    handler.emit(event("there is no device 'QUEE'", mistyped=True))
    assert bool(list(tmp_path.iterdir())) is named
    handler.emit(event("the disk is full"))
    handler.emit(event("there is no device 'QUEE'", mistyped=True))
    handler.close()
    assert (tmp_path / "ULOG.030925").read_text().count("QUEE") == (2 if named else 1)


def test_time_and_day_are_local(handler, tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "XYZ-14")
    time.tzset()
    try:
        handler.emit(event("far in the east", created=1_741_521_601))
    finally:
        monkeypatch.undo()
        time.tzset()
    # 12:00:01 UTC on the ninth.
    assert (tmp_path / "ULOG.031025").read_text().startswith("020001.")


@pytest.mark.parametrize(
    ("level", "shown"),
    [(logging.INFO, "INFO"), (logging.WARNING, "WARN"), (logging.ERROR, "ERROR"), (logging.CRITICAL, "ERROR")],
)
def test_levels_are_those_of_tuxedo(handler, tmp_path, level, shown):
    handler.emit(event("text", level=level))
    assert (tmp_path / "ULOG.030925").read_text().endswith(f": {shown}: text\n")


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


@pytest.mark.parametrize(("environ", "name"), [({}, "ULOG"), ({"ULOGPFX": ""}, "ULOG"), ({"ULOGPFX": "x/L"}, "x/L")])
def test_log_has_the_prefix_that_the_environment_names(environ, name):
    logger = logging.getLogger("qmadmin")
    before = logger.level
    handler = ulog.install("qmtest", environ)
    logger.removeHandler(handler)
    logger.setLevel(before)
    assert handler.path(datetime(2025, 3, 9, tzinfo=UTC)) == f"{name}.030925"


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


@pytest.mark.parametrize(
    ("file", "environ", "name", "as_json"),
    [
        ("", {}, "ULOG", False),
        ('[log]\nprefix = "x/L"\nformat = "json"\n', {}, "x/L", True),
        ('[log]\nprefix = "x/L"\n', {"ULOGPFX": "y/L"}, "y/L", False),
    ],
)
def test_log_is_as_the_settings_say_where_the_environment_does_not(file, environ, name, as_json, tmp_path):
    (tmp_path / "settings.toml").write_text(file)
    settings = Configuration.load({"QMADMIN_TOML": str(tmp_path / "settings.toml")})
    logger = logging.getLogger("qmadmin")
    before = logger.level
    handler = ulog.install("qmtest", environ, log=settings.log)
    logger.removeHandler(handler)
    logger.setLevel(before)
    assert handler.path(datetime(2025, 3, 9, tzinfo=UTC)) == f"{name}.030925"
    assert handler.as_json is as_json


def test_a_form_that_is_asked_for_wins_over_the_settings(tmp_path):
    (tmp_path / "settings.toml").write_text('[log]\nformat = "json"\n')
    settings = Configuration.load({"QMADMIN_TOML": str(tmp_path / "settings.toml")})
    logger = logging.getLogger("qmadmin")
    before = logger.level
    handlers = [ulog.install("qmtest", {}, log=settings.log, form=form) for form in ("text", "", "json")]
    for handler in handlers:
        logger.removeHandler(handler)
    logger.setLevel(before)
    assert [handler.as_json for handler in handlers] == [False, True, True]


def test_a_dash_for_a_prefix_is_the_standard_error_output(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    handler = ulog.UlogHandler("qmtest", "-")
    handler.emit(event("one", created=1_741_521_601))
    handler.emit(event("two", created=1_741_621_601))
    handler.close()
    os.write(2, b"it is open\n")
    lines = capfd.readouterr().err.splitlines()
    assert [line.rpartition(": ")[2] for line in lines] == ["one", "two", "it is open"]
    assert list(tmp_path.iterdir()) == []


def test_json_has_the_documented_keys_in_their_order(tmp_path):
    handler = ulog.UlogHandler("qmtest", str(tmp_path / "ULOG"), as_json=True)
    handler.emit(event("heard", level=logging.WARNING))
    handler.close()
    facts = json.loads((tmp_path / "ULOG.030925").read_text())
    assert list(facts) == list(ulog.JSON_KEYS)
    assert (facts["level"], facts["catalogue"], facts["host"]) == ("WARN", None, socket.gethostname())
    assert datetime.fromisoformat(facts["time"]).timestamp() == NOON
