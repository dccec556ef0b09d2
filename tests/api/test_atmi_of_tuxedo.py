"""What programs written for Tuxedo expect beside the calls: names of servers, types of buffers, tpsprio."""

# ruff: noqa: F403, F405 - as programs import it

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from qmadmin.atmi import *
from tests.fix_atmi import refused


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """TMQUEUE means QSPACE."""
    monkeypatch.setenv("QMALIASES", "TMQUEUE=QSPACE, BILLS = OTHER")


@pytest.fixture(autouse=True)
def leaving() -> Iterator[None]:
    """Leave what the test has joined by itself."""
    yield
    tpterm()


def priorities(count: int) -> list[int]:
    """Return the priorities of the next messages."""
    found = []
    for _ in range(count):
        ctl = TPQCTL(flags=TPQPRIORITY)
        tpdequeue("QSPACE", "STRING", ctl)
        found.append(ctl.priority)
    return found


def put(**fields: object) -> None:
    tpenqueue("QSPACE", "STRING", TPQCTL(**fields), b"")  # type: ignore[arg-type]


# ---- names of queue spaces ------------------------------------------------------------------------------------------


def test_queue_space_has_the_name_of_its_server_too(named: None, joined: Path) -> None:
    tpenqueue("TMQUEUE", "STRING", None, "a")
    assert tpdequeue("QSPACE", "STRING", None) == b"a"
    tpenqueue("QSPACE", "STRING", None, "b")
    assert tpdequeue("TMQUEUE", "STRING", TPQCTL(flags=TPQWAIT), TPNOBLOCK) == b"b"


def test_both_names_belong_to_one_transaction(named: None, joined: Path) -> None:
    tpbegin()
    tpenqueue("TMQUEUE", "STRING", None, "a")
    tpenqueue("QSPACE", "STRING", None, "b")
    tpabort()
    assert refused(tpdequeue, "QSPACE", "STRING", None).diagnostic == QMENOMSG


def test_name_that_means_no_queue_space_is_tpenoent(atmi_device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMALIASES", "TMQUEUE=GONE")
    tpinit(atmi_device)
    assert refused(tpenqueue, "TMQUEUE", "STRING", None, "a").name == "TPENOENT"
    assert refused(tpenqueue, "tmqueue", "STRING", None, "a").name == "TPENOENT"


@pytest.mark.parametrize("text", ["TMQUEUE", "=QSPACE", "TMQUEUE=", "TMQUEUE QSPACE", "A=QSPACE,A=OTHER"])
def test_aliases_that_say_nothing_clear_are_refused_when_the_device_is_joined(
    atmi_device: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("QMALIASES", text)
    error = refused(tpinit, atmi_device)
    assert error.name == "TPEINVAL"
    assert "QMALIASES" in str(error)
    monkeypatch.delenv("QMALIASES")
    tpinit(atmi_device)


# ---- types of buffers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "found"),
    [(None, ("CARRAY", "")), ("XML", ("XML", "")), ("VIEW:order", ("VIEW", "order")), ("STRING", ("STRING", ""))],
)
def test_type_and_subtype_come_back_with_the_message(joined: Path, kind: str | None, found: tuple[str, str]) -> None:
    tpenqueue("QSPACE", "STRING", None, b"<a/>", kind=kind)
    ctl = TPQCTL()
    assert tpdequeue("QSPACE", "STRING", ctl, TPNOCHANGE, kind=":".join(filter(None, found))) == b"<a/>"
    assert (ctl.type, ctl.subtype) == found


def test_structure_of_a_dequeue_gives_its_type_to_no_enqueue(joined: Path) -> None:
    tpenqueue("QSPACE", "STRING", None, b"<a/>", kind="XML")
    ctl = TPQCTL()
    tpdequeue("QSPACE", "STRING", ctl)
    tpenqueue("QSPACE", "RPLYQ", ctl, b"done")
    tpdequeue("QSPACE", "RPLYQ", ctl)
    assert ctl.type == "CARRAY"


@pytest.mark.parametrize("kind", ["", ":order", 7])
def test_kind_without_a_type_is_tpeinval(joined: Path, kind: object) -> None:
    assert refused(tpenqueue, "QSPACE", "STRING", None, b"", kind=kind).name == "TPEINVAL"
    assert refused(tpdequeue, "QSPACE", "STRING", None).diagnostic == QMENOMSG


@pytest.mark.parametrize("kind", ["X" * 300, "VIEW:" + "y" * 300, "a b\n"])
def test_type_that_no_buffer_can_have_is_refused_and_nothing_is_put(joined: Path, kind: str) -> None:
    assert refused(tpenqueue, "QSPACE", "STRING", None, b"", kind=kind).diagnostic == QMEINVAL
    assert refused(tpdequeue, "QSPACE", "STRING", None).diagnostic == QMENOMSG


# ---- tpsprio --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prio", "flags", "found"),
    [(10, 0, 60), (-10, 0, 40), (90, 0, 100), (-90, 0, 1), (7, TPABSOLUTE, 7), (100, TPABSOLUTE, 100)],
)
def test_priority_is_that_of_the_next_message_only(joined: Path, prio: int, flags: int, found: int) -> None:
    tpsprio(prio, flags)
    put()
    put()
    assert priorities(2) == [found, 50]


def test_priority_that_the_control_structure_gives_counts_more(joined: Path) -> None:
    tpsprio(7, TPABSOLUTE)
    put(flags=TPQPRIORITY, priority=80)
    put()
    assert priorities(2) == [80, 50]


def test_enqueue_that_fails_leaves_the_priority_for_the_next(joined: Path) -> None:
    tpsprio(7, TPABSOLUTE)
    refused(tpenqueue, "QSPACE", "ABSENT", None, b"")
    put()
    assert priorities(1) == [7]


def test_priority_is_that_of_its_thread(joined: Path) -> None:
    other = threading.Thread(target=tpsprio, args=(7, TPABSOLUTE))
    other.start()
    other.join()
    put()
    assert priorities(1) == [50]


@pytest.mark.parametrize(("prio", "flags"), [(0, TPABSOLUTE), (101, TPABSOLUTE), ("9", 0), (True, 0), (9, 0x1000)])
def test_priority_that_there_is_not_is_tpeinval(joined: Path, prio: object, flags: int) -> None:
    assert refused(tpsprio, prio, flags).name == "TPEINVAL"
