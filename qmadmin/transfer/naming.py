"""What the queue spaces and queues of an archive are called where it is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qmadmin.archive.manifest import ArchivedSpace, Manifest
from qmadmin.archive.rows import Standing
from qmcore.errors import BadQueueError, BadResourceError, InvalidArgumentError
from qmcore.space import Space

_HINT = "Give the name that it has in the archive first; qmspark show shows it."


class Names:
    """What queue spaces and queues of an archive are called on a device."""

    def __init__(self, spaces: Mapping[str, str], queues: Mapping[str, str]) -> None:
        self._spaces = spaces
        self._queues = queues

    def space(self, name: str) -> str:
        """Return the name of a queue space on the device."""
        return self._spaces.get(name, name)

    def queue(self, space: str, name: str) -> str:
        """Return the name of a queue on the device; one of a queue space goes before one of all."""
        return self._queues.get(f"{space}/{name}", self._queues.get(name, name))

    def standing(self, of: Standing) -> Standing:
        """Return where messages of the archive stand on the device."""
        space, queue, state, memory = of
        return self.space(space), self.queue(space, queue), state, memory


def refuse_strangers(manifest: Manifest, spaces: Iterable[str], queues: Iterable[str]) -> None:
    """Refuse new names for queue spaces and queues that the archive has not."""
    known = {space.definition.name: {queue.definition.name for queue in space.queues} for space in manifest.spaces}
    for name in spaces:
        if name not in known:
            raise BadResourceError(
                f"the archive has no queue space {name!r} that could get another name", hint=_HINT, space=name
            )
    everywhere = set().union(*known.values())
    for name in queues:
        space, _, queue = name.partition("/")
        if name not in everywhere and queue not in known.get(space, ()):
            raise BadQueueError(
                f"the archive has no queue {name!r} that could get another name", hint=_HINT, queue=name
            )


def refuse_one_name(names: Names, spaces: Iterable[str]) -> None:
    """Refuse queue spaces of an archive of which two would have one name on the device."""
    sources: dict[str, str] = {}
    for name in spaces:
        new = names.space(name)
        other = sources.setdefault(new, name)
        if other != name:
            raise InvalidArgumentError(
                f"queue spaces {other!r} and {name!r} of the archive would both be called {new!r}",
                hint="Give them different names, or import one of them.",
                space=new,
            )


def as_space(archived: ArchivedSpace) -> Space:
    """Return a queue space of an archive as one that has its messages: what identifiers they have there."""
    return Space(0, archived.incarnation, archived.definition, False, 0, archived.adopted)
