"""Clusters of Spark on this machine, whose executors are processes of their own: they can be killed, or stand still.

The servers take connections on the loopback alone, and are stopped by their numbers, whatever becomes of a test.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from tests.doom import Doom, environment_of, going_beside, over_beside, woken_beside
from tests.fix_process import PATIENCE, environment, eventually, kill_all_of
from tests.fix_qmspark import PROGRAM

HOSTS = ("127.0.0.2", "127.0.0.3")
"""Two machines, for Spark: it gives a task that lags behind to another machine than the one that has it."""

_SERVER = "org.apache.spark.deploy"
_QUIET = str(resources.files("qmadmin.spark") / "conf")


@dataclasses.dataclass
class Ended:
    """How qmspark has ended: what it wrote, and its exit status."""

    out: str
    err: str
    status: int


class Started:
    """qmspark at work, one of whose executors meets its doom, as the mark notes."""

    def __init__(self, process: subprocess.Popen[str], mark: Path) -> None:
        self._process = process
        self._mark = mark

    def end(self) -> Ended:
        """Wait for its end."""
        out, err = self._process.communicate(timeout=5 * PATIENCE)
        assert self._mark.exists(), f"no executor was at its doom: {err}"
        return Ended(out, err, self._process.returncode)

    def held_up(self) -> HeldUp:
        """Return the executor that stands still, as soon as it does."""
        eventually(lambda: self._mark.exists() or self._process.poll() is not None, "the doom of an executor")
        return HeldUp(self._mark, *json.loads(self._mark.read_text()))


@dataclasses.dataclass
class HeldUp:
    """An executor that stands still, with the process that starts its processes of Python, and the one with the task.

    The files beside `mark` tell whether the task goes on, and whether it is through with the call in which it stood.
    """

    mark: Path
    executor: int
    between: int
    task: int

    def go_on(self) -> None:
        """Let everything go on."""
        for number in (self.executor, self.between):
            os.kill(number, signal.SIGCONT)
        self._wake_task()

    def wake_up(self) -> None:
        """Let the task alone go on, whose executor may be gone, and wait for the end of its call."""
        self._wake_task()
        eventually(over_beside(self.mark).exists, "the end of the call")
        self.kill()

    def _wake_task(self) -> None:
        assert not over_beside(self.mark).exists()
        woken_beside(self.mark).touch()

        def is_going() -> bool:
            # Each time: it may have looked for the file just before, and stop after this.
            os.kill(self.task, signal.SIGCONT)
            return going_beside(self.mark).exists()

        eventually(is_going, "the task that was woken")

    def kill(self) -> None:
        """Kill what is left of it."""
        for number in (self.executor, self.between, self.task):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


class Cluster:
    """A cluster for qmspark; `options` are what it is told beside the master."""

    def __init__(self, directory: Path, home: Path, master: str, *options: str) -> None:
        self._directory = directory
        self._home = home
        self._options = ("--master", master, "--memory", "512m", *options)

    def run(self, doom: Doom, *words: object) -> Ended:
        """Run qmspark, one of whose executors meets its doom; the words are a command and what it is about.

        The next run with the same doom is spared it.
        """
        with self.started(doom, *words) as started:
            return started.end()

    @contextlib.contextmanager
    def started(self, doom: Doom, command: str, *arguments: object) -> Iterator[Started]:
        """Have it run."""
        mark = self._directory / f"{doom}"
        theirs = environment_of(doom, mark, site := mark.with_suffix(".site"))
        theirs["PYTHONPATH"] = os.pathsep.join([str(site), environment()["PYTHONPATH"]])
        # Those of a server get the environment of the server, and what they are told here.
        told = [word for name, value in theirs.items() for word in ("--conf", f"spark.executorEnv.{name}={value}")]
        process = subprocess.Popen(
            [*PROGRAM, command, *self._options, *told, *(str(each) for each in arguments)],
            env=environment(**of_spark(self._home), **theirs),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield Started(process, mark)
        finally:
            kill_all_of(process.pid)
            process.communicate()


def of_spark(home: Path, host: str = "127.0.0.1") -> dict[str, str]:
    """Return the environment of whatever is started of Spark on a machine."""
    return {
        "SPARK_HOME": str(home),
        # The session of this test process has set it, so that Spark is quiet: a master has to say where it is.
        "SPARK_CONF_DIR": str(home / "conf"),
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(home / "scratch"),
        "SPARK_DAEMON_MEMORY": "256m",
        # Half of what a test takes is the start of Java: of executors and servers, too.
        "JAVA_TOOL_OPTIONS": os.environ["SPARK_LAUNCHER_OPTS"],
        "PYSPARK_PYTHON": sys.executable,
    }


class Servers:
    """A master and a worker on each of the hosts, with one processor each."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._started: list[subprocess.Popen[bytes]] = []
        try:
            self.url = self._master()
            for host in HOSTS:
                self._worker(host)
            eventually(self._all_there, "the registration of the workers")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop them, with all that they have started."""
        for server in reversed(self._started):
            kill_all_of(server.pid)
            server.wait()

    def _master(self) -> str:
        self._start("127.0.0.1", "master.Master", "-p", "0")
        found = eventually(lambda: re.search(r"Starting Spark master at (spark://\S+)", self._said()), "a master")
        return str(found[1])

    def _worker(self, host: str) -> None:
        self._start(host, "worker.Worker", *("-p", "0", "-c", "1", "-m", "1g", "-d", self._home / host, self.url))

    def _start(self, host: str, name: str, *arguments: object) -> None:
        command = [self._home / "bin" / "spark-class", f"{_SERVER}.{name}", "-h", host, "--webui-port", "0", *arguments]
        with (self._home / "log").open("ab") as log:
            started = subprocess.Popen(
                [str(each) for each in command],
                env=environment(**of_spark(self._home, host)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started.append(started)

    def _said(self) -> str:
        for server in self._started:
            assert server.poll() is None, (self._home / "log").read_text()
        return (self._home / "log").read_text()

    def _all_there(self) -> bool:
        said = self._said()
        return all(f"Registering worker {host}:" in said for host in HOSTS)


@pytest.fixture(scope="session")
def spark_home(java: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of Spark in which its logs may lie."""
    import pyspark

    home = tmp_path_factory.mktemp("spark")
    installed = Path(pyspark.__file__).parent
    for name in ("bin", "jars", "python"):
        (home / name).symlink_to(installed / name)
    return home


@pytest.fixture
def local_cluster(spark_home: Path, tmp_path: Path) -> Cluster:
    """Two executors of one processor, which last as long as qmspark."""
    return Cluster(tmp_path, spark_home, "local-cluster[2,1,1024]")


@pytest.fixture(scope="session")
def spark_servers(spark_home: Path) -> Iterator[Servers]:
    """The servers of a cluster."""
    servers = Servers(spark_home)
    yield servers
    servers.stop()


@pytest.fixture
def speculating_cluster(spark_servers: Servers, spark_home: Path, tmp_path: Path) -> Cluster:
    """Two machines: a task that lags behind on one of them is begun on the other one as well."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.25",
        "spark.speculation.efficiency.enabled": "false",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    return Cluster(tmp_path, spark_home, spark_servers.url, *options)
