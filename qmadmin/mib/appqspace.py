"""T_APPQSPACE: queue spaces."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from qmadmin.mib.declare import (
    DEVICE,
    SPACE,
    STATE,
    VOLUME_STATE,
    Attribute,
    Code,
    Flags,
    Mark,
    MibClass,
    MibError,
    Request,
    Subject,
    ValueType,
    amount,
    common,
    count,
    in_bytes,
    opened,
    undone,
    word,
)
from qmcore.errors import BadResourceError, InUseError, in_other_words
from qmcore.space import ACTIONS_DEFAULT, ATTRIBUTES, Space, SpaceDefinition, SpaceUsage, rounded_pages
from qmcore.values import dataclass
from qmcore.volume_record import IF_MISSING, PRESENT, Why

if TYPE_CHECKING:
    from qmadmin.device import Device
    from qmcore.volume_record import MissingVolume


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceSubject(Subject):
    """A queue space, in the device and in its volume."""

    known: Space
    usage: SpaceUsage
    processes: int
    extents: int
    volume: str
    has_memory: bool
    volume_state: str = PRESENT

    @property
    def state(self) -> str:
        """Its state in three letters."""
        return "ACT" if self.processes else "OPE" if self.has_memory else "INA"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingSubject(Subject):
    """A queue space whose volume is missing."""

    missing: MissingVolume

    @property
    def volume(self) -> str:
        """The path of its volume in the device list."""
        return self.missing.path

    @property
    def volume_state(self) -> str:
        """Why its volume is missing, in a word."""
        return self.missing.state

    @property
    def state(self) -> str:
        """Its state in three letters."""
        return "UNA"

    def has(self, attribute: str) -> bool:
        """Return whether it is known without the volume."""
        return attribute in {SPACE, DEVICE, STATE, _VOLUME, VOLUME_STATE}


def _look(device: Device, space: Space) -> SpaceSubject:
    rows = device.table_of_contents()
    return SpaceSubject(
        device=device,
        space=space.name,
        known=space,
        usage=device.space_usage(space.name),
        processes=sum(process.alive for process in device.attached(space.name)),
        extents=sum(row.name.rpartition(".")[0] == space.name for row in rows),
        volume=device.places().get(space.name, ""),
        has_memory=bool(device.memory_files(space.name)),
    )


def _select(request: Request) -> Iterator[Any]:
    """Yield the queue spaces, those whose volumes are missing too, of which little is known."""
    wanted, state = request.keys.get("space"), request.keys.get("state")
    gone = {name: volume for volume in request.device.missing_volumes() for name in volume.spaces}
    there = {space.name: space for space in request.device.spaces()}
    told: set[str] = set()
    for name in sorted(gone | there):
        if wanted not in (None, name):
            continue
        volume = gone.get(name)
        found: SpaceSubject | MissingSubject
        if volume is None:
            found = _look(request.device, there[name])
        else:
            found = MissingSubject(device=request.device, space=name, missing=volume)
        if state not in (None, found.state):
            continue
        yield found
        if volume is not None and volume.path not in told:
            told.add(volume.path)
            request.warn(f"{volume}. {volume.advice}")


_VOLUME = "TA_VOLUME"


# ---- what a SET does ------------------------------------------------------------------------------------------------


def _create(request: Request) -> SpaceSubject:
    fields = _fields(request)
    initialize, volume = fields.pop("initialized", False), fields.pop("volume", None)
    definition = SpaceDefinition(name=request.keys["space"], **fields)
    created = request.device.create_space(definition, volume=volume, initialize=initialize)
    return _look(request.device, created)


def _change(request: Request) -> SpaceSubject:
    """Change limits first, which can be changed back; an extent stays."""
    device, name, fields = request.device, request.keys["space"], _fields(request)
    present = device.space(name).definition
    initialize, volume = fields.pop("initialized", False), fields.pop("volume", None)
    if volume is not None and volume != (present_volume := device.places().get(name)):
        raise MibError(Code.TAEINVAL, _VOLUME, f"queue space {name!r} is on {present_volume!r} and stays there")
    wanted = rounded_pages(fields.pop("pages", present.pages))
    if wanted < present.pages:
        raise MibError(
            Code.TAEINVAL,
            "TA_MAXPAGES",
            f"queue space {name!r} has {present.pages} pages and can have no less, got {wanted}",
        )
    changed = device.change_space(dataclasses.replace(present, **fields), initialize=initialize)
    if wanted > present.pages:
        with undone(lambda: device.change_space(present)):
            changed = device.extend_space(name, wanted - present.pages)
    return _look(device, changed)


def _open(request: Request) -> SpaceSubject:
    with opened(request):
        pass
    return _look(request.device, request.device.space(request.keys["space"]))


def _clean(request: Request) -> SpaceSubject:
    device, name = request.device, request.keys["space"]
    try:
        device.clear_memory(name, force=Flags.QMIB_FORCECLOSE in request.flags)
    except InUseError as error:
        raise _with_flag(error, Flags.QMIB_FORCECLOSE) from error
    return _look(device, device.space(name))


def _destroy(request: Request) -> None:
    name, gives_up = request.keys["space"], Flags.QMIB_GIVEUP in request.flags
    try:
        request.device.destroy_space(name, force=Flags.QMIB_FORCEDELETE in request.flags, lost=gives_up)
    except InUseError as error:
        raise _with_flag(error, Flags.QMIB_FORCEDELETE) from error
    except BadResourceError as error:
        missing = None if gives_up else request.device.missing_volume_of(name)
        if missing is None or not missing.lost:
            raise
        hint = f"{IF_MISSING} If it will never come back, give it up with the flag {Flags.QMIB_GIVEUP.name}."
        raise in_other_words(error, hint=hint) from error


def _with_flag(error: InUseError, flag: Flags) -> InUseError:
    return in_other_words(error, hint=f"Force it with the flag {flag.name}.")


def _fields(request: Request) -> dict[str, Any]:
    fields = dict(request.changes)
    if "memory" in fields:
        fields["memory"] = in_bytes(fields["memory"], request.device.info.page_size)
    return fields


# ---- attributes -----------------------------------------------------------------------------------------------------


def _of(name: str, field: str, values: str = "", more: str = "", **own: Any) -> Attribute[SpaceSubject]:
    """Return an attribute of a queue space; `more` is added to its description."""
    known = ATTRIBUTES[field]
    return Attribute(
        name=name,
        about=f"{known.about}{more}",
        values=values or f"{known.kind.least} or more",
        permissions="rw-r--r--",
        field=field,
        **{
            "kind": ValueType.LONG if known.kind.plain_type is int else ValueType.STRING,
            "get": lambda subject: subject.known.attributes[field],
            "read": known.kind.kept,
        }
        | own,
    )


def _defaulted(name: str, field: str, default: int = 0) -> Attribute[SpaceSubject]:
    return _of(name, field, f"0 or more; default {default}")


def _most(name: str, what: str, figure: str = "") -> Attribute[SpaceSubject]:
    return count(name, f"The highest number of {what} at one time.", attrgetter(f"usage.highest.{figure or what}"))


def _unknown(name: str) -> Attribute[SpaceSubject]:
    return count(name, "Always -1: it does not exist here.", lambda _subject: -1, "-1")


def _not_kept(name: str) -> Attribute[SpaceSubject]:
    return count(name, "Omitted: it is not recorded.", None, "never given")


def _word(state: str) -> str:
    return state.upper().replace("-", "_")


T_APPQSPACE: MibClass[SpaceSubject] = MibClass(
    name="T_APPQSPACE",
    noun="queue space",
    about="Queue spaces of a device.",
    states={
        "INA": "no process is attached, and there is no memory for non-persistent messages",
        "OPE": "no process is attached, and the memory for non-persistent messages exists",
        "ACT": "a process is attached",
        "UNA": "its volume is missing, and nothing else is known of it",
    },
    meanings={
        "NEW": "create the queue space",
        "OPE": "create its memory, if it is to have any, and clean up after processes that died",
        "CLE": "remove its memory, and the messages in it; refused while a process is attached, unless QMIB_FORCECLOSE",
        "INV": "destroy it; refused while a process is attached or it holds messages, unless QMIB_FORCEDELETE, and if"
        " its file or schema is missing, unless QMIB_GIVEUP",
    },
    select=_select,
    actions={"": _change, "NEW": _create, "OPE": _open, "CLE": _clean, "INV": _destroy},
    destructive={"CLE", "INV"},
    attributes=(
        *common(
            "GET INA, OPE, ACT, UNA; SET NEW, OPE, CLE, INV",
            marks=Mark.KEY | Mark.SET_KEY | Mark.REQUIRED,
            permissions="rwxrwxr--",
            selects=True,
        ),
        _defaulted("TA_BLOCKING", "blocking", 16),
        _of("TA_ERRORQNAME", "error_queue", "0 to 127 bytes; default none", " It need not exist."),
        _of(
            "TA_FORCEINIT",
            "initialized",
            "Y, N; default N",
            " This includes those of later extents. Once it is Y, N changes nothing.",
            get=lambda subject: "Y" if subject.known.initialized else "N",
            read=lambda text: word("Y", "N")(text) == "Y",
        ),
        _of("TA_IPCKEY", "ipc_key", marks=Mark.REQUIRED),
        _of("TA_MAXMSG", "messages", marks=Mark.REQUIRED),
        _of("TA_MAXPROC", "processes", marks=Mark.REQUIRED),
        _of("TA_MAXTRANS", "transactions", marks=Mark.REQUIRED),
        _of(
            "TA_MAXPAGES",
            "pages",
            "1 or more",
            " A larger number adds an extent, even while processes are attached; a smaller one is refused.",
            marks=Mark.REQUIRED,
        ),
        _of(
            "TA_MAXQUEUES",
            "queues",
            more=" Unlike in Tuxedo, it can be changed, as far as the pages allow.",
            marks=Mark.REQUIRED,
        ),
        _defaulted("TA_MAXACTIONS", "actions", ACTIONS_DEFAULT),
        _defaulted("TA_MAXHANDLES", "handles"),
        _defaulted("TA_MAXOWNERS", "owners"),
        _defaulted("TA_MAXTMPQUEUES", "temporary_queues"),
        _defaulted("TA_MAXCURSORS", "cursors"),
        _of(
            "TA_MEMNONPERSIST",
            "memory",
            "a number of bytes (b), rounded down to whole pages, or blocks (B, or no letter); GET gives bytes;"
            " default 0",
            " A change loses those messages, and is refused while another process is attached.",
            kind=ValueType.STRING,
            get=lambda subject: f"{subject.known.definition.memory}b",
            read=amount,
        ),
        _defaulted("TA_MEMFILTERS", "filter_memory"),
        _defaulted("TA_MEMOVERFLOW", "overflow"),
        _not_kept("TA_MEMSYSTEMRESERVED"),
        _not_kept("TA_MEMTOTALALLOCATED"),
        Attribute(
            name=_VOLUME,
            values="a path of the device list; default that with the most free pages",
            about="The file or schema that it is on, which is set when it is created.",
            get=lambda subject: subject.volume,
            field="volume",
            permissions="rw-r--r--",
        ),
        Attribute(
            name=VOLUME_STATE,
            values=", ".join(_word(state) for state in (PRESENT, *(why.state for why in Why if why is not Why.LISTED))),
            about="Whether that file or schema is there, or why it is not.",
            get=lambda subject: _word(subject.volume_state),
        ),
        count("TA_CUREXTENT", "Extents.", attrgetter("extents")),
        count("TA_CURMSG", "Messages. Known in every state.", attrgetter("usage.messages")),
        count("TA_CURPROC", "Attached processes that are alive.", attrgetter("processes")),
        count("TA_CURQUEUES", "Queues. Known in every state.", attrgetter("usage.queues")),
        count("TA_CURTRANS", "Transactions. Known in every state.", attrgetter("usage.transactions")),
        count("TA_CURACTIONS", "Actions in use.", attrgetter("usage.actions")),
        *(_unknown(f"TA_CUR{what}") for what in ("HANDLES", "OWNERS", "TMPQUEUES", "CURSORS")),
        count("TA_CURMEMNONPERSIST", "Bytes of memory in use.", attrgetter("usage.memory")),
        *(_unknown(f"TA_CUR{what}") for what in ("MEMFILTERS", "MEMOVERFLOW")),
        _most("TA_HWMSG", "messages"),
        _most("TA_HWPROC", "attached processes", "processes"),
        _most("TA_HWQUEUES", "queues"),
        _most("TA_HWTRANS", "transactions"),
        _most("TA_HWACTIONS", "actions in use", "actions"),
        *(_unknown(f"TA_HW{what}") for what in ("HANDLES", "OWNERS", "TMPQUEUES", "CURSORS")),
        _not_kept("TA_HWMEMNONPERSIST"),
        *(_unknown(f"TA_HW{what}") for what in ("MEMFILTERS", "MEMOVERFLOW")),
        count(
            "TA_PERCENTINIT",
            "100 if the disk space for its pages is allocated, otherwise 0: it is allocated as it is needed.",
            lambda subject: 100 if subject.known.initialized else 0,
            "0, 100",
        ),
    ),
)
