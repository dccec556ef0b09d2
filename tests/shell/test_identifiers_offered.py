"""Identifiers of messages as they are offered in a terminal."""

import pytest

from qmadmin import open_device


@pytest.fixture
def filled(laid_out, terminal):
    """Start the program in a terminal, with STRING as the current queue and three messages in it."""
    with open_device(laid_out.device) as device, device.open_space("QSPACE") as space:
        ids = [space.enqueue("STRING", b"x" * size, priority=10 + size, corrid=b"a id %d" % size) for size in range(3)]
    screen = terminal(columns=120)
    screen.at_prompt()
    screen.enter("qopen QSPACE")
    screen.enter("qset STRING")
    return screen, ids


def test_message_identifiers_are_offered_with_what_they_are(filled):
    screen, ids = filled
    screen.send("qscan -m \t")
    screen.see(f"{ids[0]}  priority 10, 0 bytes, ready", f"{ids[2]}  priority 12, 2 bytes, ready")
    assert f"> qscan -m {ids[0][:-1]}" in screen.shown
    screen.send(f"{ids[1][-1]}\r")
    screen.see(f"Criteria are -m {ids[1]}")
    screen.at_prompt()
    assert f"-m {ids[1]}" in screen.bottom


def test_correlation_identifiers_are_offered_as_they_are_typed(filled):
    screen, _ = filled
    screen.send("qscan -i \t")
    screen.see(r"a\20id\200", r"a\20id\202  priority 12")
    screen.send("1\r")
    screen.see(r"Criteria are -i a\20id\201")
    screen.at_prompt()
    screen.enter("paginate off")
    screen.enter("qlist")
    screen.see(" 11 ")


def test_identifier_is_completed_that_was_begun(filled):
    screen, ids = filled
    screen.send(f"qpeek -m {ids[0][:4]}\t")
    screen.until(lambda: f"> qpeek -m {ids[0][:-1]}" in screen.shown, "what all have")
