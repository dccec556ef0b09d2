"""Measures exports and imports beside Spark's JDBC, a plain loop and the sqlite3 program, interleaved in one run.

Every subject carries the same messages of random bodies from one SQLite file, and into a new one. "qmadmin" does it by
processes of this machine, "qmadmin on Spark" by tasks of a local session; both with all that they promise: one moment
of a live device, digests, and queues that nobody sees before all is there. "Spark JDBC" copies the table of messages to
Parquet and back into a table of the same columns and indexes. The start of Spark is not counted. A producer works
beside one more export and import; what it had to wait is told. Absolute figures mean little on a shared machine; ratios
of one run do.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import qmadmin
from benchmarks import machine
from qmadmin.transfer import Executor, Processes, cores
from qmadmin.transfer.exporting import export
from qmadmin.transfer.importing import load_archive
from qmcore.errors import OperatingSystemError
from qmcore.queue import QueueDefinition
from qmcore.space import SpaceDefinition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPACE, QUEUE, LIVE = "BENCH", "STORED", "LIVE"
JDBC = ("/usr/share/java/sqlite-jdbc.jar", "/usr/share/java/xerial-sqlite-jdbc.jar")
_CORES = cores()

_PRODUCER = """
import sys, time, json, qmadmin
device, stop = sys.argv[1:]
spent = []
with qmadmin.open_device(device) as opened, opened.open_space("BENCH") as space:
    body = bytes(1024)
    print("ready", flush=True)
    import os
    while not os.path.exists(stop):
        began = time.perf_counter()
        space.enqueue("LIVE", body)
        spent.append(time.perf_counter() - began)
spent.sort()
of = {"p50": len(spent) // 2, "p99": len(spent) * 99 // 100, "most": -1}
print(json.dumps({"count": len(spent), **{name: spent[at] for name, at in of.items()}}))
"""


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench archives", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--messages", type=int, default=200_000, help="messages that are carried (200000)")
    parser.add_argument("-b", "--bytes", type=int, default=1024, help="bytes of each body (1024)")
    parser.add_argument("-r", "--rounds", type=int, default=3, help="rounds of all measurements (3)")
    parser.add_argument("-d", "--directory", help="where the files are made (default: the system's temporary files)")
    parser.add_argument("--without-spark", action="store_true", help="measure nothing that needs Java")
    parser.add_argument("--json", metavar="FILE", help="write the result there, too")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=asked.directory) as directory, _spark(not asked.without_spark) as session:
        result = Run(Path(directory), asked, session).result()
    print(_table(result))
    if asked.json:
        Path(asked.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


@contextlib.contextmanager
def _spark(wanted: bool) -> Iterator[SparkSession | None]:
    from qmadmin.spark.session import start

    jar = next((path for path in JDBC if Path(path).exists()), None)
    if not wanted:
        yield None
        return
    settings = {"spark.driver.memory": "2g", "spark.sql.parquet.compression.codec": "zstd"}
    if jar:
        settings |= {"spark.jars": jar, "spark.driver.extraClassPath": jar}
    try:
        session = start(f"local[{_CORES}]", settings)
    except OperatingSystemError as error:
        print(f"scripts/bench: without Spark: {error}", file=sys.stderr)
        yield None
        return
    session.range(_CORES).rdd.map(lambda row: row).count()
    yield session
    session.stop()


class Run:
    """One run of everything."""

    def __init__(self, place: Path, asked: argparse.Namespace, session: SparkSession | None) -> None:
        self._place = place
        self._asked = asked
        self._session = session
        self._device = place / "source"
        self._archive = place / "archive"
        self._parquet = place / "parquet"
        self._dump = place / "dump.sql"
        self._rates: dict[tuple[str, str], list[float]] = {}

    def result(self) -> dict[str, Any]:
        """Measure, and return the figures."""
        head = machine.description()
        _filled(self._device, self._asked.messages, self._asked.bytes)
        for _ in range(self._asked.rounds):
            for what, subjects in (("export", self._exports()), ("import", self._imports())):
                for name, work in subjects:
                    began = time.perf_counter()
                    work()
                    rate = self._asked.messages / (time.perf_counter() - began)
                    self._rates.setdefault((what, name), []).append(rate)
        return {
            "machine": head | {"load_after": round(os.getloadavg()[0], 2)},
            "options": {key: getattr(self._asked, key) for key in ("messages", "bytes", "rounds")},
            "results": [self._told(what, name) for what, name in self._rates],
            "beside": [self._beside("export"), self._beside("import")],
            "small": self._small(),
        }

    def _told(self, what: str, name: str) -> dict[str, Any]:
        rates = self._rates[what, name]
        bars = self._rates.get((what, "Spark JDBC"))
        ratios = [own / bar for own, bar in zip(rates, bars, strict=True)] if bars else []
        return {
            "what": what,
            "subject": name,
            "rates": rates,
            "median": statistics.median(rates),
            "ratio": statistics.median(ratios) if ratios else None,
        }

    def _exports(self) -> list[tuple[str, Callable[[], None]]]:
        found: list[tuple[str, Callable[[], None]]] = [("qmadmin", lambda: self._export(Processes(_CORES)))]
        if self._session is not None:
            found.append(("qmadmin on Spark", lambda: self._export(self._spark_workers())))
            if _has_driver():
                found.append(("Spark JDBC", self._jdbc_export))
        return [*found, ("SQLAlchemy loop", self._loop_export), ("sqlite3 .dump", self._dump_export)]

    def _imports(self) -> list[tuple[str, Callable[[], None]]]:
        found: list[tuple[str, Callable[[], None]]] = [("qmadmin", lambda: self._import(Processes(_CORES)))]
        if self._session is not None:
            found.append(("qmadmin on Spark", lambda: self._import(self._spark_workers())))
            if _has_driver():
                found.append(("Spark JDBC", self._jdbc_import))
        return [*found, ("SQLAlchemy loop", self._loop_import), ("sqlite3 < dump", self._dump_import)]

    def _spark_workers(self) -> Executor:
        from qmadmin.spark.spark_executor import SparkExecutor

        assert self._session is not None
        return SparkExecutor(self._session)

    def _export(self, workers: Executor) -> None:
        shutil.rmtree(self._archive, ignore_errors=True)
        export(str(self._device), self._archive, executor=workers)

    def _import(self, workers: Executor) -> None:
        target = self._fresh("target")
        qmadmin.create_device(target, 2 * _pages(self._asked.messages, self._asked.bytes)).close()
        load_archive(self._archive, str(target), executor=workers)

    def _jdbc_export(self) -> None:
        shutil.rmtree(self._parquet, ignore_errors=True)
        assert self._session is not None
        low, high = _range(self._device)
        options = {"partitionColumn": "id", "lowerBound": str(low), "upperBound": str(high)}
        table = self._session.read.format("jdbc").options(
            url=f"jdbc:sqlite:{self._device}", dbtable="message", numPartitions=str(_CORES), fetchsize="1000", **options
        )
        table.load().write.parquet(str(self._parquet))

    def _jdbc_import(self) -> None:
        target = self._fresh("jdbc")
        _bare(target)
        assert self._session is not None
        self._session.read.parquet(str(self._parquet)).coalesce(1).write.format("jdbc").options(
            url=f"jdbc:sqlite:{target}", dbtable="message", batchsize="2000"
        ).mode("append").save()

    def _loop_export(self) -> None:
        """What anybody writes first: one process, SQLAlchemy, pyarrow."""
        import pyarrow as pa
        import pyarrow.parquet as pq
        import sqlalchemy as sa

        engine = sa.create_engine(f"sqlite:///{self._device}")
        table = sa.Table("message", sa.MetaData(), autoload_with=engine)
        writer = None
        with engine.connect().execution_options(stream_results=True) as connection:
            for rows in connection.execute(sa.select(table)).partitions(1000):
                batch = pa.Table.from_pylist([dict(row._mapping) for row in rows], schema=_SCHEMA(table))  # noqa: SLF001
                writer = writer or pq.ParquetWriter(self._place / "naive.parquet", batch.schema, compression="zstd")
                writer.write_table(batch)
        if writer is not None:
            writer.close()
        engine.dispose()

    def _loop_import(self) -> None:
        import pyarrow.parquet as pq
        import sqlalchemy as sa

        target = self._fresh("loop")
        _bare(target)
        engine = sa.create_engine(f"sqlite:///{target}")
        table = sa.Table("message", sa.MetaData(), autoload_with=engine)
        for batch in pq.ParquetFile(self._place / "naive.parquet").iter_batches(2000):
            with engine.begin() as connection:
                connection.execute(sa.insert(table), batch.to_pylist())
        engine.dispose()

    def _dump_export(self) -> None:
        with self._dump.open("wb") as dump:
            subprocess.run(["sqlite3", str(self._device), ".dump message"], stdout=dump, check=True)

    def _dump_import(self) -> None:
        target = self._fresh("restored")
        with self._dump.open("rb") as dump:
            subprocess.run(["sqlite3", str(target)], stdin=dump, check=True)

    def _beside(self, what: str) -> dict[str, Any]:
        """Measure what a producer waits while this is done, how long the log gets, and what the work itself reaches."""
        device = self._device
        if what == "import":
            device = self._fresh("live")
            with qmadmin.create_device(device, 2 * _pages(self._asked.messages, self._asked.bytes)) as made:
                _lay_out(made, self._asked.messages, self._asked.bytes, LIVE)
        stop = self._place / "stop"
        stop.unlink(missing_ok=True)
        with (
            _Longest(Path(f"{device}-wal")) as log,
            subprocess.Popen(
                [sys.executable, "-c", _PRODUCER, str(device), str(stop)], stdout=subprocess.PIPE, text=True
            ) as producer,
        ):
            assert producer.stdout is not None
            producer.stdout.readline()
            began = time.perf_counter()
            if what == "export":
                self._export(Processes(_CORES))
            else:
                load_archive(self._archive, str(device), _into_live(), executor=Processes(_CORES))
            rate = self._asked.messages / (time.perf_counter() - began)
            stop.touch()
            figures = json.loads(producer.stdout.readline())
        return {"what": what, "rate": rate, "log": log.most, "producer": figures}

    def _small(self) -> float:
        """Return the seconds of an export of 1,000 messages by the program itself."""
        device, archive = self._fresh("small"), self._place / "small-archive"
        shutil.rmtree(archive, ignore_errors=True)
        _filled(device, 1000, self._asked.bytes)
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "qmadmin.program", str(device), "-c", f"qexport {archive}"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return time.perf_counter() - began

    def _fresh(self, name: str) -> Path:
        """Return a place where nothing is, of what was there before."""
        for path in self._place.glob(f"{name}*"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        return self._place / name


class _Longest:
    """Looks how long a file gets."""

    def __init__(self, path: Path) -> None:
        self.most = 0
        self._path = path
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> _Longest:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(0.02):
            with contextlib.suppress(FileNotFoundError):
                self.most = max(self.most, self._path.stat().st_size)


def _has_driver() -> bool:
    return any(Path(path).exists() for path in JDBC)


def _into_live() -> Any:
    from qmadmin.transfer.import_planning import ImportOptions
    from qmadmin.transfer.selecting import ArchiveSelection

    return ImportOptions(selection=ArchiveSelection(queues=(QUEUE,)))


def _pages(messages: int, size: int) -> int:
    return messages * (1 + (size + 256) // 4096) * 2 + 10_000


def _lay_out(device: qmadmin.Device, messages: int, size: int, *queues: str) -> None:
    device.create_space(
        SpaceDefinition(
            name=SPACE,
            ipc_key=40_000,
            pages=_pages(messages, size),
            queues=10,
            transactions=100,
            processes=100,
            messages=messages * 2 + 1_000_000,
        )
    )
    with device.open_space(SPACE) as space:
        for queue in queues:
            space.create_queue(QueueDefinition(name=queue))


def _filled(path: Path, messages: int, size: int) -> None:
    with qmadmin.create_device(path, 2 * _pages(messages, size)) as device:
        _lay_out(device, messages, size, QUEUE, LIVE)
        with device.open_space(SPACE) as space:
            for done in range(0, messages, 1000):
                # Bodies that cannot be compressed, as encrypted or compressed ones.
                space.enqueue_many(QUEUE, [os.urandom(size) for _ in range(min(1000, messages - done))])


def _range(device: Path) -> tuple[int, int]:
    with contextlib.closing(sqlite3.connect(device)) as connection:
        low, high = connection.execute("SELECT min(id), max(id) + 1 FROM message").fetchone()
    return int(low), int(high)


def _bare(path: Path) -> None:
    """Make a file with our table of messages and its indexes, and nothing else."""
    pattern = path.with_name(f"{path.name}-pattern")
    with qmadmin.create_device(pattern, 100):
        pass
    with contextlib.closing(sqlite3.connect(pattern)) as source, contextlib.closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode = WAL")
        for (statement,) in source.execute(
            "SELECT sql FROM sqlite_schema WHERE tbl_name = 'message' AND sql IS NOT NULL"
        ):
            made.execute(statement)


def _SCHEMA(table: Any) -> Any:  # noqa: N802 - it is used as a constant is
    import pyarrow as pa
    import sqlalchemy as sa

    kinds = ((sa.Integer, pa.int64()), (sa.LargeBinary, pa.binary()))
    return pa.schema(
        [
            (column.name, next((kind for of, kind in kinds if isinstance(column.type, of)), pa.string()))
            for column in table.columns
        ]
    )


def _table(result: dict[str, Any]) -> str:
    box, options = result["machine"], result["options"]
    amount = f"{options['messages']:,} messages of {options['bytes']} bytes, {options['rounds']} interleaved rounds"
    lines = [
        machine.sentence(box),
        f"{amount}; messages per second: median, spread, ratio to Spark JDBC",
    ]
    for what in ("export", "import"):
        lines += ["", what]
        for row in (row for row in result["results"] if row["what"] == what):
            spread = (max(row["rates"]) - min(row["rates"])) / 2 / row["median"]
            ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
            lines.append(f"  {row['subject']:20}{row['median']:>10,.0f} {f'±{spread:.0%}':>6}{ratio:>7}")
    for row in result["beside"]:
        told = row["producer"]
        lines.append(
            f"\n{row['what']} beside a producer: {row['rate']:,.0f} a second, log {row['log'] / 2**20:.0f} MiB at most;"
            f" {told['count']} enqueues, p50 {told['p50'] * 1e3:.1f} ms, p99 {told['p99'] * 1e3:.1f} ms,"
            f" longest {told['most'] * 1e3:.0f} ms"
        )
    lines.append(f"\nqexport of 1,000 messages, the whole program: {result['small']:.2f} s")
    return "\n".join(lines)
