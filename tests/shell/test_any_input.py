"""Whatever a script has in its lines, each is answered in a sentence, and the session goes on."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from qmadmin import open_device
from qmadmin.shell.catalogue import Catalogue


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path, monkeypatch):
    """A line may name a file, which then comes to lie in the current directory."""
    monkeypatch.chdir(tmp_path)


NAMES = [name for command in Catalogue().commands for name in command.names if name not in ("!", "!!", "watch")]
VALUES = ["", "''", '""', "y", "n", "Q1", "QSPACE", "0", "-1", "99999999999999999999", "100%", "5m", "+5", "none", "on"]

words = st.one_of(
    st.sampled_from(VALUES),
    st.sampled_from(["-y", "-f", "-p", "-d", "-n", "-e", "-A", "--", "-", "-dpersist", "-x"]),
    st.text(max_size=12),
    st.sampled_from(
        ['"', "'", '"a"b', "a\tb", "\\", "\x00", "\x1b[2J", "{name}", "%s", "\ud800", "\N{RIGHT-TO-LEFT MARK}"]
    ),
)
lines = st.one_of(
    st.builds(lambda name, rest: " ".join([name, *rest]), st.sampled_from(NAMES), st.lists(words, max_size=12)),
    words,
).filter(lambda line: "!" not in line and "|" not in line)


@example(script=["\x1f", "qset \x1f", "\x0b\x0c"])
@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(script=st.lists(lines, max_size=12))
def test_any_script_is_answered_in_sentences(shell, script):
    ran = shell.run("\n".join([f"crdl {shell.device} 0 2000", "qopen QSPACE", *script]))
    assert "failed inside qmadmin" not in ran.err
    assert all(line.split(":")[0] in ("ERROR", "WARN", "INFO") for line in ran.err.split("\n")[:-1])
    assert "\x1b" not in ran.both


@pytest.mark.parametrize("name", [command.name for command in Catalogue().commands if not command.raw])
@pytest.mark.parametrize("device", ["absent", "laid out"])
def test_every_command_alone_at_the_end_of_a_script_comes_back(shell, name, device):
    if device == "laid out":
        shell.lay_out()
    ran = shell.run(name)
    assert "failed inside qmadmin" not in ran.err
    assert "Traceback" not in ran.both


def test_device_that_can_only_be_read_is_announced_before_the_first_result(laid_out, monkeypatch):
    def open_for_reading(path):
        device = open_device(path)
        device.readonly = True
        return device

    monkeypatch.setattr("qmadmin.opening.open_device", open_for_reading)
    ran = laid_out.run("verbose\nverbose off\nlidl\nlivtoc\n")
    announced = f"WARN: device '{laid_out.device}' is open for reading only: you may not write to it (crque, line 3)\n"
    assert ran.err == announced
    assert ran.both.index(announced) < ran.both.index("Index")
    announced, refused = laid_out.run("qset\nqopen NOPE\n").err.splitlines()[1:]
    assert announced.startswith("WARN: device ")
    assert refused.startswith("ERROR: xa_open")
