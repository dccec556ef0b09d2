"""Archives on the file systems that Hadoop can reach, such as hdfs:// and s3a://, through the Java of a Spark session.

It is only used for small files. Parts of an archive are written on this machine first, and read by tasks of Spark.
"""

from __future__ import annotations

import contextlib
import errno
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import urlsplit

from qmadmin.archive import Fault, refused
from qmadmin.archive.file_systems import Directory, no_file, symbolic_link
from qmadmin.spark.session import as_os_errors, is_remote
from qmcore.errors import OperatingSystemError, QueueError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_COPIED_AT_A_TIME: Final = 2**20

_UMASK: Final = ("fs.permissions.umask-mode", "077")
"""The permissions of files: only the owner may read them."""

_TRIES: Final = ("ipc.client.connect.max.retries.on.timeouts", "45", "3")
"""Settings for the number of attempts to reach a host that does not answer, each of which takes 20 seconds."""


@contextlib.contextmanager
def hadoop_place(session: SparkSession, address: str) -> Iterator[HadoopPlace]:
    """Open the directory at an address such as hdfs://host/directory for the block.

    Raises OperatingSystemError if Spark has no file system for it. No host is contacted yet.
    """
    if is_remote(session):
        raise OperatingSystemError(
            f"the archive {address!r} cannot be reached through Spark Connect, which has no files for its clients",
            hint="Name a directory that this machine has, or use a session that runs in this process.",
        )
    with contextlib.ExitStack() as stack:
        try:
            place = HadoopPlace(session.sparkContext, address, stack)
        except OSError as error:
            raise _unreachable(address, error) from None
        yield place


class HadoopPlace:
    """A directory that the Hadoop of a Spark session can reach, in the process that started the session.

    The stack takes the clean-up for when it is no longer used.
    """

    staged = True

    def __init__(self, context: SparkContext, address: str, stack: contextlib.ExitStack) -> None:
        self._address = address
        self._stack = stack
        self._staging: Path | None = None
        self._sizes: dict[str, int] = {}
        self._links: set[str] = set()
        java = context._jvm  # noqa: SLF001 - there is no other way to the file systems
        self._hadoop: Any = java.org.apache.hadoop  # type: ignore[union-attr]  # the session is running
        self._io: Any = java.java.io  # type: ignore[union-attr]
        with self._faults():
            self._path = self._hadoop.fs.Path(self._address)
            settings = self._hadoop.conf.Configuration(context._jsc.hadoopConfiguration())  # noqa: SLF001
            settings.set(*_UMASK)
            name, default, tries = _TRIES
            if settings.get(name, default) == default:
                settings.set(name, tries)
            # A file system of its own, because others must not get these settings.
            self._files = self._hadoop.fs.FileSystem.newInstance(self._path.toUri(), settings)
            stack.callback(self._close)
            local = self._path.toUri().getScheme() == "file"
            # Hadoop silently follows symbolic links of this machine, and waits for pipes.
            self._here = Directory(Path(self._path.toUri().getPath())) if local else None

    def __str__(self) -> str:
        return self._address

    def address_of(self, name: str) -> str:
        """Return the address of a file for Hadoop."""
        return str(self._at(name).toString())

    def names(self) -> list[str]:
        """Return the names of all that is in it."""
        with self._faults():
            if not self._files.getFileStatus(self._path).isDirectory():
                raise NotADirectoryError(errno.ENOTDIR, "it is not a directory")
            found = {each.getPath().getName(): each for each in self._files.listStatus(self._path)}
            # Anything that is not a file is refused when its size is requested.
            self._sizes = {name: each.getLen() for name, each in found.items() if each.isFile()}
            self._links = {name for name in found if name not in self._sizes and found[name].isSymlink()}
        return list(found)

    def size(self, name: str) -> int:
        """Return the size of a file in bytes, which is known after the files were listed."""
        if self._here is not None:
            return self._here.size(name)
        if name in self._links:
            raise symbolic_link(name)
        if name not in self._sizes:
            with self._faults():
                self._sizes[name] = _length(name, self._files.getFileStatus(self._at(name)))
        return self._sizes[name]

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        """Open a file for the block, with all its content in memory."""
        self.size(name)
        with self._faults(), contextlib.closing(self._files.open(self._at(name))) as stream:
            data = bytes(stream.readAllBytes())
        yield io.BytesIO(data)

    def make(self) -> None:
        """Create it, its parent directories, and a staging directory, which is removed at the end."""
        if self._staging is None:
            self._staging = Path(self._stack.enter_context(_staging_directory()))
        with self._faults():
            if not self._files.mkdirs(self._path):
                raise OSError(errno.EIO, "the directory cannot be made")

    def staging(self) -> Path:
        """Return the staging directory."""
        if self._staging is None:
            raise ValueError("there is a staging directory only after `make`")
        return self._staging

    def take(self, name: str) -> None:
        """Upload a file of the staging directory, which is removed there."""
        path = self.staging() / name
        with (
            self._faults(),
            contextlib.closing(self._io.FileInputStream(str(path))) as source,
            contextlib.closing(self._files.create(self._at(name), False)) as there,
        ):
            self._hadoop.io.IOUtils.copyBytes(source, there, _COPIED_AT_A_TIME, False)
            _sync_file(there)
        path.unlink()

    def write(self, name: str, data: bytes) -> None:
        """Write a file."""
        with self._faults(), contextlib.closing(self._files.create(self._at(name), False)) as there:
            there.write(data)
            _sync_file(there)

    def rename(self, name: str, new: str) -> None:
        """Rename a file."""
        self.remove(new)
        self._sizes.pop(name, None)
        with self._faults():
            if not self._files.rename(self._at(name), self._at(new)):
                raise OSError(errno.EIO, f"{name!r} cannot be renamed to {new!r}")

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._sizes.pop(name, None)
        with self._faults():
            self._files.delete(self._at(name), False)

    def drop(self) -> None:
        """Remove the directory."""
        with self._faults():
            self._files.delete(self._path, False)

    def sync(self) -> None:
        """Do nothing: Hadoop has no such operation."""

    def _at(self, name: str) -> Any:
        return self._hadoop.fs.Path(self._path, name)

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            with as_os_errors(urlsplit(self._address).netloc):
                yield
        except OSError as error:
            if error.errno == errno.EHOSTUNREACH:
                raise _unreachable(self._address, error) from None
            raise

    def _close(self) -> None:
        # Everything written is closed already; a host that has disappeared since does not matter.
        with contextlib.suppress(OSError, QueueError), self._faults():
            self._files.close()


def _staging_directory() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="qmspark-")
    except OSError as error:
        sentence = f"parts cannot be written into a directory of {tempfile.gettempdir()!r} first: {error.strerror}"
        raise refused(Fault.UNWRITABLE, sentence, hint="Make room there, or have TMPDIR name another one.") from None


def _unreachable(address: str, error: OSError) -> Exception:
    sentence = f"the archive {address!r} cannot be reached: {error.strerror}"
    return refused(Fault.UNREACHABLE, sentence, archive=address)


def _length(name: str, status: Any) -> int:
    if not status.isFile():
        raise no_file(name)
    return int(status.getLen())


def _sync_file(stream: Any) -> None:
    # Object stores have a file as soon as it is closed.
    if stream.hasCapability("hsync"):
        stream.hsync()
