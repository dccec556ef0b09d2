"""What the settings and the environment mean to the programs that run by themselves."""

import json
import subprocess
import sys

import pytest

from qmadmin.ulog import JSON_KEYS
from tests.fix_process import environment

SERVICES = '[services.STRING]\ncommand = ["cat"]\n'


@pytest.fixture
def laid_out(site):
    site.services(SERVICES)
    site.lay_out("STRING")
    return site


def run(site, *arguments, settings=None, **environ):
    """Run a forwarder until its queues are empty, with these settings; return the completed process."""
    if settings is not None:
        (site.directory / "settings.toml").write_text(settings)
        environ["QMADMIN_TOML"] = str(site.directory / "settings.toml")
    done = subprocess.run(
        [*site.command()[:3], *arguments, "-q", "STRING", "-e"],
        cwd=site.directory,
        env=environment(**environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert "Traceback" not in done.stderr
    return done


def log(site, prefix="ULOG"):
    """Return the one log of these programs."""
    (found,) = site.directory.glob(f"{prefix}.*")
    return found.read_text()


def test_the_forwarder_does_what_the_settings_say(laid_out):
    (laid_out.directory / "services.toml").rename(laid_out.directory / "others.toml")
    settings = f"""
        [qmadmin]
        device = "{laid_out.device}"
        [log]
        prefix = "LOG"
        [tmqforward]
        services = "others.toml"
        trantime = 10
        idletime = 5
    """
    done = run(laid_out, "QSPACE", settings=settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert "services of 'others.toml', -t 10 -i 5 -e" in log(laid_out, "LOG")


def test_options_win_over_the_settings(laid_out):
    settings = '[qmadmin]\ndevice = "NONE"\n[tmqforward]\nservices = "none.toml"\ntrantime = 10\nidletime = 5\n'
    done = run(laid_out, "QUE", "QSPACE", "-t", "0", "-i", "7", "-s", "services.toml", settings=settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert "services of 'services.toml', -t 0 -i 7 -e" in log(laid_out)


def test_the_environment_wins_over_the_settings(laid_out):
    settings = '[qmadmin]\ndevice = "NONE"\n[log]\nprefix = "none/LOG"\n[tmqforward]\nservices = "none.toml"\n'
    environ = {"QMCONFIG": "QUE", "ULOGPFX": "MINE", "QM_SERVICES": "services.toml"}
    done = run(laid_out, "QSPACE", settings=settings, **environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert "services of 'services.toml', -t 60 -i 30 -e" in log(laid_out, "MINE")


def test_a_number_without_meaning_is_ignored_in_favour_of_the_settings(laid_out):
    settings = "[tmqforward]\ntrantime = 10\nidletime = 5\n"
    done = run(laid_out, "QUE", "QSPACE", "-t", "soon", "-i", "later", settings=settings)
    assert done.returncode == 0
    assert "-t 10 -i 5 -e" in log(laid_out)


def test_log_as_json_has_an_object_of_the_known_keys_on_each_line(laid_out):
    laid_out.space.enqueue("STRING", "x")
    done = run(laid_out, "QUE", "QSPACE", "-t", "soon", settings='[log]\nformat = "json"\n')
    assert done.returncode == 0
    events = [json.loads(line) for line in log(laid_out).splitlines()]
    assert {tuple(event) for event in events} == {tuple(JSON_KEYS)}
    # The second one is about the error queue, which is missing.
    assert [event["level"] for event in events] == ["WARN", "INFO", "WARN", "INFO"]
    assert [event["catalogue"] for event in events] == [1602, None, None, None]
    assert {event["program"] for event in events} == {"tmqforward"}
    assert events[-1]["text"].endswith("1 message forwarded, 0 calls failed")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            "[tmqforward]\ntrantime = '1'\n",
            "trantime in [tmqforward] must be a whole number of seconds from 0 to 2147483647",
        ),
        ("[tmqforwrad]\n", "has the unknown section [tmqforwrad]"),
        ("[", "is not TOML: "),
    ],
)
def test_settings_with_a_fault_keep_the_forwarder_from_starting(laid_out, settings, said):
    done = run(laid_out, "QUE", "QSPACE", settings=settings)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"ERROR: settings file '{laid_out.directory}/settings.toml'")
    assert said in line
    assert list(laid_out.directory.glob("ULOG.*")) == []


def test_settings_that_are_named_and_not_there_keep_the_forwarder_from_starting(laid_out):
    done = run(laid_out, "QUE", "QSPACE", QMADMIN_TOML="none.toml")
    assert done.returncode == 2
    assert done.stderr == "ERROR: there is no settings file 'none.toml', which QMADMIN_TOML names\n"


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_need_no_settings(site, option):
    done = run(site, option, QMADMIN_TOML="none.toml")
    assert (done.returncode, done.stderr) == (0, "")


def run_capacity_command(site, settings):
    (site.directory / "settings.toml").write_text(settings)
    code = "import sys; from qmadmin.capacity.command_runner import main; main(sys.argv[1:])"
    event = ["QSPACE", "STRING", "echo full", "80%", "83", "persist"]
    subprocess.run(
        [sys.executable, "-c", code, *event],
        cwd=site.directory,
        env=environment(QMADMIN_TOML="settings.toml", QMCONFIG=str(site.device)),
        check=True,
        timeout=240,
    )


def test_capacity_commands_are_logged_as_the_settings_say(site):
    run_capacity_command(site, '[log]\nprefix = "LOG"\nformat = "json"\n')
    events = [json.loads(line) for line in log(site, "LOG").splitlines()]
    assert {event["program"] for event in events} == {"capacity"}
    assert any("full" in event["text"] for event in events)


def test_a_capacity_command_runs_although_the_settings_have_a_fault(site):
    run_capacity_command(site, "[log]\nprefx = 1\n")
    first, *more = log(site).splitlines()
    assert "WARN: settings file 'settings.toml': [log] has the unknown setting prefx = 1" in first
    assert any("full" in line for line in more)


def test_the_option_for_the_form_of_the_log_wins_over_the_settings(laid_out):
    done = run(laid_out, "QUE", "QSPACE", "--log-format", "json", settings='[log]\nformat = "text"\n', ULOGPFX="-")
    assert done.returncode == 0
    texts = [json.loads(line)["text"] for line in done.stderr.splitlines()]
    assert texts[-1] == "tmqforward stopped: its queues are empty; 0 messages forwarded, 0 calls failed"
    assert list(laid_out.directory.glob("*ULOG*")) == []


def test_a_form_of_the_log_that_is_not_known_is_refused(laid_out):
    done = run(laid_out, "QUE", "QSPACE", "--log-format", "xml")
    assert done.returncode == 2
    assert done.stderr.startswith("ERROR: Invalid value for '--log-format': 'xml' is not one of 'text', 'json'\n")
