"""The power cut of a machine: what was written to its files, and not brought to the disk, is gone.

A process of a test keeps what is on the disk beside the files: `keep` notes the contents of a file whenever it is
synced, by SQLite or by us, also where it dies of a signal later. The test then has the machine lose its power:
`cut` puts the files back as they were when they were last synced. A file that was removed is there again unless its
directory was synced afterwards; one that is new stays with what was synced of it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from qmstorage.sqlite import files, wal

ENDS = ("", "-wal", "-journal")
"""What the names of the files of a database end with, that are more than memory."""


def copy(directory: Path, kept: Path) -> None:
    """Take all files of a directory that nobody has open for synced."""
    kept.mkdir()
    for path in directory.iterdir():
        if path.is_file():
            shutil.copyfile(path, kept / path.name)


def cut(kept: Path, paths: Iterable[str]) -> None:
    """Let databases lose what was not synced; nobody has them open."""
    for path in paths:
        Path(f"{path}-shm").unlink(missing_ok=True)
        for end in ENDS:
            file, synced = Path(path + end), kept / Path(path + end).name
            if synced.exists():
                shutil.copyfile(synced, file)
            elif end:
                file.unlink(missing_ok=True)


def keep(kept: Path) -> None:
    """Note from now on what this process brings to the disk; it has no database open yet."""
    sync, sync_beside, sync_directory = vars(wal)["_sync"], files.sync_beside, files.sync_directory

    def synced(fd: int) -> None:
        sync(fd)
        _note(kept, Path(f"/proc/self/fd/{fd}").readlink().name, os.pread(fd, os.fstat(fd).st_size, 0))

    def beside_synced(path: str) -> None:
        sync_beside(path)
        if Path(path).exists():
            _note(kept, Path(path).name, Path(path).read_bytes())

    def directory_synced(path: str) -> None:
        sync_directory(path)
        for each in kept.iterdir():
            if not (Path(path).parent / each.name).exists():
                each.unlink()

    vars(wal)["_sync"], files.sync_beside, files.sync_directory = synced, beside_synced, directory_synced
    _watch_sqlite(kept)


def _note(kept: Path, name: str, contents: bytes) -> None:
    # In one step: it may die in the middle.
    (kept / f"{name}.new").write_bytes(contents)
    (kept / f"{name}.new").rename(kept / name)


# ---- SQLite's own way to the disk ------------------------------------------------------------------------------------


_Read = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
_Sync = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_Size = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))
_Open = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int)
)
_Delete = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)


class _Methods(ctypes.Structure):
    """The methods of an open file (sqlite3_io_methods)."""

    _fields_ = (
        ("version", ctypes.c_int), ("close", ctypes.c_void_p), ("read", _Read), ("write", ctypes.c_void_p),
        ("truncate", ctypes.c_void_p), ("sync", _Sync), ("size", _Size), ("others", ctypes.c_void_p * 12),
    )  # fmt: skip


class _File(ctypes.Structure):
    """An open file (sqlite3_file)."""

    _fields_ = (("methods", ctypes.POINTER(_Methods)),)


class _System(ctypes.Structure):
    """The operating system, as SQLite sees it (sqlite3_vfs)."""

    _fields_ = (
        ("version", ctypes.c_int), ("size", ctypes.c_int), ("longest", ctypes.c_int), ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("open", _Open), ("delete", _Delete),
    )  # fmt: skip


_KEPT: list[Any] = []
"""What SQLite refers to from now on."""


def _watch_sqlite(kept: Path) -> None:
    """Have SQLite tell what it syncs, and what it removes.

    The contents are read by its own methods: to open a file of its once more would take its locks away.
    """
    import _sqlite3

    found = ctypes.CDLL(_sqlite3.__file__).sqlite3_vfs_find
    found.restype = ctypes.POINTER(_System)
    system = found(None)[0]
    its_open, its_delete = _copied(_Open, system.open), _copied(_Delete, system.delete)
    names: dict[int, str] = {}
    watched: dict[int, _Methods] = {}

    def open_file(this: int, name: int | None, file: int, flags: int, flags_out: Any) -> int:
        done = its_open(this, name, file, flags, flags_out)
        opened = _File.from_address(file)
        if done == 0 and name and opened.methods:
            names[file] = Path(os.fsdecode(ctypes.string_at(name))).name
            address = ctypes.addressof(opened.methods[0])
            if address not in watched:
                watched[address] = _watching(opened.methods[0], names, kept)
            opened.methods = ctypes.pointer(watched[address])
        return done

    def delete(this: int, name: bytes, syncs_directory: int) -> int:
        done = its_delete(this, name, syncs_directory)
        if done == 0 and syncs_directory:
            (kept / Path(os.fsdecode(name)).name).unlink(missing_ok=True)
        return done

    system.open, system.delete = _Open(open_file), _Delete(delete)
    _KEPT.extend((system, system.open, system.delete, watched))


def _watching(methods: _Methods, names: dict[int, str], kept: Path) -> _Methods:
    """Return the methods of a file that also note what is synced."""
    its_sync, size, read = _copied(_Sync, methods.sync), methods.size, methods.read
    made = _Methods.from_buffer_copy(methods)

    def sync(file: int, flags: int) -> int:
        done = its_sync(file, flags)
        length = ctypes.c_int64()
        if done == 0 and size(file, ctypes.byref(length)) == 0:
            contents = ctypes.create_string_buffer(length.value)
            if not length.value or read(file, contents, length.value, 0) == 0:
                _note(kept, names[file], contents.raw)
        return done

    made.sync = _Sync(sync)
    _KEPT.extend((made, made.sync))
    return made


def _copied(kind: Any, function: Any) -> Callable[..., int]:
    """Return a function at its address, whatever is put in its place in the structure that it is from."""
    return kind(ctypes.cast(function, ctypes.c_void_p).value)  # type: ignore[no-any-return]
