"""qmspark as a program: what it refuses, how it ends, how it tells how far it is, completion, Spark."""

import io
import os
import signal
import subprocess
import threading
from pathlib import Path

import click
import pytest
from rich.console import Console

from qmadmin.console.styled import Meter, told_of
from qmadmin.spark.kinds import AGE
from qmadmin.spark.program import qmspark as group
from tests.fix_process import PATIENCE, environment, eventually
from tests.fix_qmspark import PROGRAM

# A message in ten minutes: long enough for everything that a test does meanwhile.
SLOW = ["--rate", "0.002", "--processes"]


def end(process):
    out, err = process.communicate(timeout=PATIENCE)
    return out, err, process.returncode


class TestRefusal:
    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            ([], "Missing command"),
            (["exprot"], "exprot"),
            (["export"], "Give a device and the directory of an archive"),
            (["export", "a", "b", "c"], "Give a device and the directory of an archive"),
            (["show"], "Missing argument 'ARCHIVE'"),
            (["show", "a", "--nothing"], "--nothing"),
            (["show", "a", "--format", "xml"], "'xml' is not one of"),
            (["show", "none"], "the archive 'none' is not there"),
            (["show", "postgresql://ann:secret@host/a"], "'postgresql://***@host/a' is not a directory for an archive"),
            (["export", "NONE", "a"], "there is no device"),
            (["export", "--older-than", "soon", "D", "a"], "'soon' is not a span of time"),
            (["export", "--state", "ready,gone", "D", "a"], "'gone' is not a state"),
            (["export", "--where", "priority >", "D", "a"], "'--where'"),
            (["export", "--count", "0", "D", "a"], "'--count'"),
            (["export", "--definitions-only", "--messages-only", "D", "a"], "exclude each other"),
            (["export", "--remove", "--move", "E", "D", "a"], "exclude each other"),
            (["export", "--start", "D", "a"], "--start is for --move"),
            (["export", "--move", "", "D", "a"], "'--move': an empty word names nothing"),
            (["export", "--key", "", "D", "a"], "'--key': an empty word names nothing"),
            (["verify", "--master", "", "a"], "'--master': an empty word names nothing"),
            (["export", "", "a"], "an empty word names nothing"),
            (["export", "D", ""], "an empty word names nothing"),
            (["import", "a", ""], "an empty word names nothing"),
            (["import", "", "D"], "an empty word names nothing"),
            (["import", "--abandon-all", ""], "an empty word names nothing"),
            (["verify", "a", ""], "an empty word names nothing"),
            (["show", ""], "an empty word names nothing"),
            (["query", "", "SELECT 1"], "an empty word names nothing"),
            (["query", "D", ""], "an empty word names nothing"),
            (["import", "--rename", "QSPACE", "a", "D"], "'QSPACE' is not of the form OLD=NEW"),
            (["import", "--rename-queue", "=new", "a", "D"], "'=new' is not of the form"),
            (["import", "--rename", "A=" + "x" * 16, "a", "D"], "queue space name"),
            (["import", "--times", "shift", "--shift-by", "1e300", "a", "D"], "'--shift-by'"),
            (["import", "--times", "shift", "--shift-by", "-99999999999999", "a", "D"], "'--shift-by'"),
            (["import", "--times", "shift", "--shift-by", "nan", "a", "D"], "'nan' is not a number"),
            (["import", "--rate", "nan", "a", "D"], "'nan' is not a number"),
            (["export", "--rate", "inf", "D", "a"], "'--rate'"),
            (["import", "--resume", "--abandon", "a", "D"], "exclude each other"),
            (["import", "--abandon", "--abandon-all", "D"], "exclude each other"),
            (["import", "--resume", "--abandon-all", "D"], "exclude each other"),
            (["import", "--abandon-all", "a", "D"], "Give a device alone with --abandon-all"),
            (["import"], "Give the directory of an archive and a device"),
            (["verify", "--partitions", "4", "a"], "--partitions is for work on Spark"),
            (["verify", "--conf", "spark.x=1", "a"], "--conf is for work on Spark"),
            (["verify", "--master", "local", "--memory", "much", "a"], "'much' is not a size of memory"),
            (["verify", "--master", "local", "--conf", "x=1", "a"], "'x=1' is not of the form"),
            (["verify", "--master", "local", "--processes", "2", "a"], "--processes is for work without Spark"),
        ],
    )
    def test_mistake_is_one_sentence_and_nothing_is_begun(self, qmspark, monkeypatch, arguments, sentence):
        monkeypatch.chdir(qmspark.directory)
        # An empty word does not stand for that one.
        monkeypatch.setenv("QMCONFIG", qmspark.device)
        before = sorted(Path.cwd().iterdir())
        refusal = qmspark.refusal(*arguments)
        assert refusal.startswith("ERROR: ")
        assert sentence in refusal
        assert sorted(Path.cwd().iterdir()) == before

    def test_what_cannot_be_used_is_told_apart_from_what_failed_by_the_exit_status(self, qmspark):
        archive, key = qmspark.archive(), qmspark.directory / "key"
        for options in (["--key", key], ["--key", qmspark.directory]):
            qmspark.refusal("show", *options, archive)
        key.write_bytes(b"short")
        assert "16 to 4096 bytes" in qmspark.refusal("verify", "--key", key, archive)
        server = "postgresql://nobody@127.0.0.1:1/none"
        assert "cannot be reached" in qmspark.refusal("import", archive, server)
        (qmspark.directory / "archive" / "part-00000.parquet").write_bytes(b"")
        assert qmspark.refusal("verify", archive, status=1).startswith("ERROR: QMESYSTEM: ")

    def test_failure_is_a_document_too_where_that_is_the_format(self, qmspark):
        archive = qmspark.archive()
        said = qmspark("export", "--format", "json", qmspark.device, archive, status=2)
        assert '"severity": "ERROR", "text": "QMEINUSE: the directory' in said.out
        assert said.out.endswith('"ok": false}\n')
        assert said.err.startswith("ERROR: QMEINUSE: ")

    def test_wrong_file_of_settings_is_refused(self, qmspark, monkeypatch):
        settings = qmspark.directory / "qmadmin.toml"
        settings.write_text("[qmadmin]\nformat = 7\n")
        monkeypatch.setenv("QMADMIN_TOML", str(settings))
        assert "qmadmin.toml" in qmspark.refusal("show", "a")

    def test_missing_java_is_told_with_what_to_install_before_anything_is_begun(self, qmspark, monkeypatch):
        monkeypatch.setenv("JAVA_HOME", qmspark.path("nowhere"))
        # Another test of this process may have a session.
        monkeypatch.setattr("qmadmin.spark.session.active", lambda: None)
        refusal = qmspark.refusal("export", "--master", "local[2]", qmspark.device, qmspark.path("archive"))
        assert "Spark needs Java" in refusal
        assert "openjdk-17-jre-headless" in refusal
        assert not Path(qmspark.path("archive")).exists()

    def test_fault_of_the_program_is_one_line_and_the_log_has_the_rest(self, qmspark, monkeypatch):
        archive = qmspark.archive()
        monkeypatch.setattr("qmadmin.console.archives.content", lambda *_: 1 / 0)
        assert qmspark.refusal("show", archive, status=1).startswith("ERROR: qmspark failed: ZeroDivisionError")
        (log,) = qmspark.directory.glob("ULOG.*")
        assert "Traceback" in log.read_text()

    def test_quiet_says_nothing_but_what_is_wrong(self, qmspark):
        archive = qmspark.path("archive")
        said = qmspark("export", "--quiet", qmspark.device, archive)
        assert (said.out, said.err) == ("", "")
        qmspark.site.space.dequeue("orders")
        said = qmspark("verify", "-q", archive, qmspark.device, status=1)
        assert said.out == ""
        assert "3 on the device" in said.err


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("7d", 604_800), ("1.5h", 5400)]
)
def test_age_is_seconds_or_has_a_unit(text, seconds):
    assert AGE.convert(text, None, None) == seconds


class TestEnd:
    @pytest.mark.parametrize("processes", ["1", "2"])
    @pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_export_that_is_interrupted_leaves_nothing(self, qmspark, number, status, processes):
        archive = qmspark.directory / "archive"
        started = qmspark.start("export", *SLOW, processes, qmspark.device, archive)
        eventually(lambda: list(archive.glob(".part*")) or started.poll() is not None, "a part")
        started.send_signal(number)
        _, err, ended = end(started)
        assert ended == status, err
        assert not archive.exists()
        assert ("qmspark export was interrupted" in err) == (number == signal.SIGINT)
        assert "Traceback" not in err

    def test_closed_output_and_reader_who_has_seen_enough_are_no_trouble(self, qmspark):
        archive = qmspark.archive()
        command = f"exec {' '.join(PROGRAM)} show {archive!r}"
        for redirection, status in ((">&-", 0), (">/dev/full", 1), ("2>&-", 0)):
            done = subprocess.run(
                ["sh", "-c", f"{command} {redirection}"],
                env=environment(),
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE,
            )
            assert done.returncode == status, done.stderr
            assert "Traceback" not in done.stderr

    def test_process_that_dies_in_the_middle_is_told_and_leaves_nothing(self, qmspark):
        archive = qmspark.directory / "archive"
        started = qmspark.start("export", *SLOW, "2", qmspark.device, archive)
        eventually(lambda: list(archive.glob(".part*")) or started.poll() is not None, "a part")
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        _, err, status = end(started)
        assert status == 1
        assert "ended by signal 9 in the middle of its work" in err
        assert not archive.exists()


class Paper(io.StringIO):
    """What is written on a terminal; `begun` is set when the first of it is there."""

    def __init__(self):
        super().__init__()
        self.begun = threading.Event()

    def write(self, text):
        count = super().write(text)
        if "Starting" in self.getvalue():
            self.begun.set()
        return count


class TestProgress:
    def show(self, *steps):
        console = Console(file=Paper(), force_terminal=True, width=60, _environ={"TERM": "xterm"})
        with Meter(console, "Starting", after=0) as reached:
            assert console.file.begun.wait(PATIENCE)
            for step in steps:
                reached(*step)
        return console.file.getvalue()

    def test_bar_names_the_step_and_is_gone_afterwards(self):
        shown = self.show(("Exporting", 0, 4000), ("Exporting", 1000, 4000))
        assert "Exporting" in shown
        assert "25%" in shown
        # The line is erased, and the cursor is back.
        assert shown.endswith("\x1b[2K") or "\x1b[?25h" in shown.rpartition("\n")[2]

    def test_bar_begins_again_with_each_step(self):
        shown = self.show(("Verifying", 0, 100), ("Verifying", 90, 100), ("Importing", 0, 100), ("Importing", 50, 100))
        assert "Importing" in shown
        assert "50%" in shown.partition("Importing")[2]

    def test_rate_and_time_left_are_those_of_what_came_since_the_step_began(self):
        assert told_of(3000, 4000, 2000, 2.0) == "75%  1000/s  1s left"
        assert told_of(50, 1_000_000, 50, 0.5) == "0%  100/s  2h46m left"
        assert told_of(1000, 4000, 0, 2.0) == "25%"

    def test_nothing_is_shown_where_it_is_over_at_once(self):
        console = Console(file=io.StringIO(), force_terminal=True, width=60, _environ={"TERM": "xterm"})
        with Meter(console, "Starting") as reached:
            reached("Exporting", 5, 5)
        assert console.file.getvalue() == ""


class TestHelp:
    def test_commands_are_listed_in_the_order_of_their_use(self, qmspark):
        said = qmspark("-h").out
        places = [said.index(f"  {name}  ") for name in ("export", "import", "verify", "show")]
        assert places == sorted(places)

    @pytest.mark.parametrize("command", group.commands.values(), ids=lambda command: command.name)
    def test_command_tells_each_of_its_options(self, qmspark, command):
        for flag in ("-h", "--help"):
            said = qmspark(command.name, flag).out
            for parameter in command.params:
                if isinstance(parameter, click.Option):
                    assert parameter.opts[-1] in said
                    assert parameter.help

    def test_version_is_told(self, qmspark):
        assert qmspark("--version").out.startswith("qmspark ")

    @pytest.mark.parametrize(
        ("words", "offered"),
        [
            ("qmspark ex", ["export"]),
            ("qmspark export --st", ["--state", "--start"]),
            ("qmspark export --state ready,del", ["ready,delayed"]),
            ("qmspark import --existing re", ["refuse", "replace"]),
        ],
    )
    def test_shell_completes_commands_options_and_values(self, qmspark, words, offered):
        done = subprocess.run(
            PROGRAM,
            env=environment(
                _QMSPARK_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1)
            ),
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        assert [line.partition(",")[2] for line in done.stdout.splitlines()] == offered

    def test_no_arrow_and_no_spark_are_loaded_for_help(self):
        source = (
            "import sys; from qmadmin.spark import program; program.main(['export', '-h']);"
            "sys.exit(any(name in sys.modules for name in ('pyarrow', 'pyspark', 'pandas', 'sqlalchemy')))"
        )
        done = subprocess.run(
            [PROGRAM[0], "-c", source], env=environment(), capture_output=True, check=False, timeout=PATIENCE
        )
        assert done.returncode == 0


@pytest.mark.slow
@pytest.mark.usefixtures("java")
def test_what_spark_writes_and_loads_is_what_processes_write_and_load(qmspark):
    spark = ["--master", "local[2]", "--memory", "768m", "--conf", "spark.sql.shuffle.partitions=2"]
    there = qmspark.empty_device()
    mine = qmspark.archive("mine")
    for command in (
        ["export", "-q", *spark, "--partitions", "2", qmspark.device, "archive"],
        ["import", "-q", *spark, "archive", there],
        ["verify", "-q", *spark, "archive", there],
    ):
        assert end(qmspark.start(*command)) == ("", "", 0)
    digests = [qmspark.json("verify", each, there).found["queues"] for each in (mine, qmspark.path("archive"))]
    assert digests[0] == digests[1]
