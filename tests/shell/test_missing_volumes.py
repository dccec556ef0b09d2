"""What the program shows of a device one of whose files or schemas is missing, and with which exit status it ends."""

import contextlib
import io
import json

import pytest

import qmadmin
from qmadmin.console.render import PlainScreen
from qmadmin.mib import requests
from qmadmin.shell import complete
from qmadmin.shell.catalogue import Catalogue
from qmadmin.shell.session import Session
from tests.fix_store import space_definition


@pytest.fixture
def lacking(shell, place):
    """Scripts on a device whose second volume, with the queue space FAR, is away."""
    shell.device = shell.environ["QMCONFIG"] = place.store.path
    place.move(place.second, place.away)
    shell.place = place
    return shell


def rows(shell, command):
    """Return the rows of a command for programs, and its one notice."""
    ran = shell.run(f"format json\n{command}\n")
    document = json.loads(ran.out.splitlines()[-1])
    assert ran.status == 1
    (notice,) = document["notices"]
    assert f"'{shell.place.second}' with queue space FAR cannot be opened: " in notice["text"]
    return document["rows"], notice["severity"], document["ok"]


def test_all_queue_spaces_are_listed_with_their_volumes_and_the_states_of_those(lacking):
    second = lacking.place.second
    for mode in ("", "verbose on\n"):
        (far, near), severity, ok = rows(lacking, f"{mode}qspacelist ''")
        assert (severity, ok) == ("WARN", True)
        assert list(far) == list(near)
        assert {key: value for key, value in far.items() if value is not None} == {
            "queue_space": "FAR",
            "volume": second,
            "volume_state": "missing",
        }
        assert (near["queue_space"], near["pages"], near["volume_state"]) == ("NEAR", 40, "present")
    ran = lacking.run("qspacelist ''\n")
    head, far, near = ran.out.splitlines()
    assert head.split()[-2:] == ["Volume", "State"]
    assert far.split() == ["FAR", *"-------", second, "missing"]
    assert near.split()[-1] == "present"


def test_one_that_is_missing_is_shown_with_its_volume_and_refused(lacking):
    (far,), severity, ok = rows(lacking, "qspacelist FAR")
    assert (severity, ok) == ("ERROR", False)
    assert (far["volume"], far["volume_state"]) == (lacking.place.second, "missing")
    ran = lacking.run("qspacelist FAR\n")
    assert ran.out.splitlines()[1:] == [
        f"  Volume:          {lacking.place.second}",
        "  State of volume: missing",
    ]
    there = lacking.run("qspacelist NEAR\n")
    assert there.status == 0
    assert "State of volume:         present" in there.out


@pytest.mark.parametrize(("command", "key"), [("lidl", "name"), ("livtoc", "device")])
def test_the_device_list_and_the_table_of_contents_say_the_state_of_each_entry(lacking, command, key):
    found, severity, ok = rows(lacking, command)
    assert (severity, ok) == ("WARN", True)
    assert {row["state"] for row in found if row[key] == lacking.place.second} == {"missing"}
    assert {row["state"] for row in found if row[key] != lacking.place.second} == {"present"}


def test_of_one_entry_only_its_own_volume_counts(lacking):
    assert lacking.run("lidl 0\n").status == 0
    ran = lacking.run("verbose on\nlidl 1\n")
    assert ran.status == 1
    assert "      state:  missing" in ran.out.splitlines()


def test_a_script_that_repairs_goes_on_although_its_first_command_has_said_what_is_missing(lacking):
    away = lacking.place.away
    for command in ("lidl", "livtoc", "qspacelist ''"):
        ran = lacking.process(f"{command}\nchdl -y 1 {away}\nlidl 1\n", "--stop-on-error")
        assert ran.returncode == 1, "it was missing"
        assert "Renamed device" in ran.stdout
        assert ran.stdout.splitlines()[-1].split()[4] == "present"
        lacking.process(f"chdl -y 1 {lacking.place.second}\n")
    assert lacking.process(f"chdl -y 1 {away}\nlidl\n", "--stop-on-error").returncode == 0


def test_the_check_says_it_once_and_names_the_queue_spaces(lacking):
    for command in ("qcheck", "qcheck FAR"):
        ran = lacking.run(f"format json\n{command}\n")
        assert ran.status == 1
        found = json.loads(ran.out.splitlines()[-1])["rows"]
        (missing,) = [row for row in found if lacking.place.second in f"{row['object']} {row['finding']}"]
        assert missing["check"] == "volume-missing"
        assert "queue space FAR cannot be used without it" in missing["finding"]
    assert "volume-missing" not in lacking.run("qcheck NEAR\n").both
    assert "there is no queue space 'NONE'" in lacking.run("qcheck NONE\n").err


def test_the_live_view_begins_with_what_is_missing(lacking, terminal):
    ran = lacking.run("qopen NEAR\nqtop\n")
    assert ran.status == 0
    assert ran.both.index("with queue space FAR cannot be opened: ") < ran.both.index("Depth")
    screen = terminal(columns=200, arguments=["-s", "NEAR"])
    screen.at_prompt()
    screen.send("qtop\r")
    screen.until(lambda: "; missing: FAR" in screen.shown, "the title")
    screen.send("q")
    screen.at_prompt()


def test_a_mib_request_has_the_exit_status_of_what_it_gets(lacking):
    for keys, names, status in ((), ["FAR", "NEAR"], 1), (["TA_APPQSPACENAME=NEAR"], ["NEAR"], 0):
        out = io.StringIO()
        assert requests.run(lacking.device, ["T_APPQSPACE", "get", *keys], out) == status
        document = json.loads(out.getvalue())
        assert [found["TA_APPQSPACENAME"] for found in document["objects"]] == names
        assert len(document.get("warnings", [])) == status


def test_what_is_not_whole_is_made_only_if_that_is_asked(lacking):
    directory = lacking.directory
    commands = [] if lacking.place.is_postgres else ["qbackup"]
    for command in (*commands, "qexport"):
        ran = lacking.run(f"{command} {directory}/{command}\n")
        assert ran.status == 1
        assert f"would lack '{lacking.place.second}' with queue space FAR (" in ran.err
        assert "or leave it out. The option is -L." in lacking.type(f"{command} {directory}/{command}\n").both
        ran = lacking.run(f"{command} -L {directory}/{command}\n")
        assert ran.status == 0
        assert ran.err.startswith(f"WARN: '{lacking.place.second}' with queue space FAR cannot be opened: ")
    assert lacking.run(f"qexport -s NEAR {directory}/near\nqopen NEAR\nqexport {directory}/opened\n").err == ""
    assert "all that is selected is missing: " in lacking.run(f"qexport -s FAR {directory}/far\n").err


def test_it_is_given_up_on_either_store(lacking):
    second = lacking.place.second
    ran = lacking.run("qspacedestroy -L -y FAR\ndsdl -y 1\nlidl\nqspacelist ''\n")
    assert ran.status == 0, ran.both
    assert "Queue space 'FAR' given up" in ran.out
    assert f"entry 1 of the device list still names '{second}'" in ran.err
    assert "given up with all that was on" in lacking.run("qaudit\n").out


def test_a_name_that_is_not_finished_is_finished_with_what_is_missing_too(lacking):
    screen = PlainScreen(io.StringIO(), io.StringIO())
    with contextlib.closing(Session(lacking.device, Catalogue(), screen, lacking.environ)) as session:
        _, found = complete.line(session, "qspacedestroy -L ")
        assert [(each.text, each.about) for each in found] == [
            ("FAR", "its volume is missing"),
            ("NEAR", "40 pages"),
        ]


def test_an_export_by_qmspark_is_whole_unless_that_is_asked(qmspark):
    second = qmspark.directory / "SECOND"
    with qmadmin.open_device(qmspark.device) as device:
        device.create_entry(second, 0, 100_000)
        device.create_space(space_definition("FAR", pages=4_000), volume=second)
    second.unlink()
    refusal = qmspark.refusal("export", qmspark.device, qmspark.path("archive"))
    assert f"would lack '{second}' with queue space FAR (" in refusal
    assert refusal.endswith("or leave it out. The option is --leave-out-missing.")
    said = qmspark("export", "--leave-out-missing", qmspark.device, qmspark.path("archive"))
    assert "; it is left out" in " ".join(said.err.split())
    assert qmspark("export", "--space", "QSPACE", qmspark.device, qmspark.path("one")).err == ""
