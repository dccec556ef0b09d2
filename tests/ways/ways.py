"""Every way in which a caller brings messages to a queue, takes them, commits, or moves them.

A way is a generator: what comes before its `yield` makes ready, what comes after it is the call that a rule is to see.
Where its face tells of a refusal in words, it raises them.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from qmadmin import mib
from qmcore.message import PLAIN_CONTROL, EnqueueControl
from qmcore.queue import Delivery
from tests.fix_postgres import database_of
from tests.fix_shell import Shell
from tests.fix_store import Store, attachment_of, make_queue
from tests.ways import planting
from tests.ways.transitions import ARRIVE, CLAIM, MOVE, SETTLE, Transition

ALL: Final = ("file", "memory", "postgres")
SHARED: Final = ("file", "postgres")
LARGE: Final = bytes(3 << 20)


class RefusedError(Exception):
    """A face that tells of a refusal in words has refused."""


class Way(NamedTuple):
    """A way in: what it does to messages of the queue Q, on which stores it goes, and how."""

    name: str
    transition: Transition
    stores: tuple[str, ...]
    steps: Callable[[Scene], Iterator[None]]


class Scene:
    """A queue space SPACE with the queues Q and OTHER, and one for each property that a way wants."""

    def __init__(self, store: Store, directory: Path, start: Callable[..., Any]) -> None:
        self.store = store
        self.directory = directory
        self.start = start
        self.space = store.space(error_queue="ERRORS", pages=5000)
        make_queue(self.space, "Q", retries=3, out_of_order="top,msgid")
        for name in ("OTHER", "ERRORS"):
            make_queue(self.space, name)
        # So that what is looked up at the first call is known, and no transaction is the first one ever.
        for name in ("Q", "OTHER"):
            self.space.enqueue(name, b"known")
            with self.space.transaction():
                assert self.space.dequeue(name)

    @property
    def config(self) -> str:
        """What the programs are given to open the device."""
        return str(self.store.path)

    @contextlib.contextmanager
    def connection(self) -> Iterator[Any]:
        """Give the application's own connection, in a transaction that commits at the end."""
        import sqlalchemy

        if self.store.kind == "postgres":
            url = sqlalchemy.make_url(database_of(self.store.path)[0]).set(drivername="postgresql+psycopg")
            engine = sqlalchemy.create_engine(url)
        else:
            engine = sqlalchemy.create_engine(f"sqlite:///{self.store.path}")
            sqlalchemy.event.listen(engine, "connect", lambda made, _: made.execute("PRAGMA synchronous = FULL"))
        try:
            with engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()

    def shell(self, script: str) -> None:
        """Run commands on the queue space, and raise what they are refused with."""
        shell = Shell(self.directory)
        shell.device = shell.environ["QMCONFIG"] = self.config
        ran = shell.run(f"qopen SPACE\n{script}\n")
        if planting.WORDS in ran.both:
            raise RefusedError(ran.both)
        assert ran.status == 0, ran.both

    def mib(self, class_name: str, **attributes: Any) -> None:
        """Change an object of the management information base."""
        mib.set(self.store.device, class_name, {"TA_APPQSPACENAME": "SPACE"} | attributes)


WAYS: list[Way] = []


def way(transition: Transition, stores: tuple[str, ...] = ALL) -> Callable[[Any], Any]:
    """Register a way."""

    def register(steps: Callable[[Scene], Iterator[None]]) -> Callable[[Scene], Iterator[None]]:
        WAYS.append(Way(steps.__name__, transition, stores, steps))
        return steps

    return register


def ways(transition: Transition, stores: tuple[str, ...] = ALL, **calls: Callable[[Scene], object]) -> None:
    """Register ways that need nothing but the scene, each with its call."""
    for name, call in calls.items():

        def steps(scene: Scene, call: Callable[[Scene], object] = call) -> Iterator[None]:
            yield
            call(scene)

        steps.__name__ = name
        way(transition, stores)(steps)


def in_transaction(call: Callable[[Scene], object]) -> Callable[[Scene], object]:
    """Return the call as it is made in a transaction, which is rolled back: only the call itself is seen."""

    def does(scene: Scene) -> None:
        with scene.space.transaction() as transaction:
            call(scene)
            transaction.rollback()

    return does


# ---- arrivals -------------------------------------------------------------------------------------------------------

_ENQUEUES: dict[str, Callable[[Scene], object]] = {
    "enqueue": lambda scene: scene.space.enqueue("Q", b"x"),
    "enqueue_text": lambda scene: scene.space.enqueue("Q", "x"),
    "enqueue_with_priority": lambda scene: scene.space.enqueue("Q", b"x", priority=70),
    "enqueue_with_corrid": lambda scene: scene.space.enqueue("Q", b"x", corrid="c", reply_queue="OTHER"),
    "enqueue_with_headers": lambda scene: scene.space.enqueue("Q", b"x", headers={"a": "b"}),
    "enqueue_delayed": lambda scene: scene.space.enqueue("Q", b"x", delay=10),
    "enqueue_expiring": lambda scene: scene.space.enqueue("Q", b"x", expires_in=10),
    "enqueue_on_top": lambda scene: scene.space.enqueue("Q", b"x", top=True),
    "enqueue_large": lambda scene: scene.space.enqueue("Q", LARGE),
    "enqueue_many": lambda scene: scene.space.enqueue_many("Q", [b"x"] * 3),
    "enqueue_many_with_options": lambda scene: scene.space.enqueue_many("Q", [b"x"] * 3, EnqueueControl(priority=9)),
    "put": lambda scene: scene.space.put("Q", b"x", PLAIN_CONTROL),
    "put_many": lambda scene: scene.space.put_many([("OTHER", b"x", PLAIN_CONTROL), ("Q", b"x", PLAIN_CONTROL)]),
}
ways(ARRIVE, **_ENQUEUES)
ways(ARRIVE, **{f"{name}_in_a_transaction": in_transaction(call) for name, call in _ENQUEUES.items()})


@way(ARRIVE)
def enqueue_before_another(scene: Scene) -> Iterator[None]:
    first = scene.space.enqueue("Q", b"x")
    yield
    scene.space.enqueue("Q", b"x", before=first)


@way(ARRIVE)
def enqueue_in_memory(scene: Scene) -> Iterator[None]:
    scene.store.device.create_space(_with_memory())
    with scene.store.device.open_space("MEMORY") as space:
        make_queue(space, "Q", delivery=Delivery.NONPERSIST)
        yield
        space.enqueue("Q", b"x")


@way(ARRIVE, SHARED)
def enqueue_on_a_connection(scene: Scene) -> Iterator[None]:
    yield
    with scene.connection() as connection:
        scene.space.enqueue("Q", b"x", connection=connection)


@way(ARRIVE)
def enqueue_spilled(scene: Scene) -> Iterator[None]:
    yield
    with scene.space.transaction() as transaction:
        for _ in range(3):
            scene.space.enqueue("OTHER", LARGE)
        scene.space.enqueue("Q", LARGE)
        transaction.rollback()


@way(ARRIVE)
def answer_in_the_step_of_a_commit(scene: Scene) -> Iterator[None]:
    scene.space.enqueue("OTHER", b"request")
    yield
    with scene.space.transaction() as transaction:
        assert scene.space.dequeue("OTHER")
        answer = "Q", b"x", PLAIN_CONTROL
        if transaction.commit_and_take([answer], None, "OTHER") is None:
            # What is refused, or not done, in one step is done step by step.
            scene.space.put(*answer)


@way(ARRIVE)
def answer_of_a_failure(scene: Scene) -> Iterator[None]:
    scene.space.enqueue("OTHER", b"request")
    yield
    with scene.space.transaction() as transaction:
        request = scene.space.dequeue("OTHER")
        assert request
        transaction.answer_failure(request.msgid, "failed", [("Q", b"x", PLAIN_CONTROL)])


@way(ARRIVE, SHARED)
def tpenqueue(scene: Scene) -> Iterator[None]:
    from qmadmin import atmi

    with _joined(scene):
        yield
        atmi.tpenqueue("SPACE", "Q", atmi.TPQCTL(), b"x")


@way(ARRIVE, SHARED)
def tpenqueue_in_a_transaction(scene: Scene) -> Iterator[None]:
    from qmadmin import atmi

    with _joined(scene):
        yield
        atmi.tpbegin()
        try:
            atmi.tpenqueue("SPACE", "Q", atmi.TPQCTL(flags=atmi.TPQPRIORITY, priority=3), b"x")
        finally:
            atmi.tpabort()


@way(ARRIVE, SHARED)
def qput(scene: Scene) -> Iterator[None]:
    yield
    scene.shell('qput Q "x"')


@way(ARRIVE, SHARED)
def qimport(scene: Scene) -> Iterator[None]:
    yield from _imported(scene, lambda archive: scene.shell(f"qimport -e append -y {archive}"))


@way(ARRIVE, SHARED)
def qimport_in_place_of_the_queue(scene: Scene) -> Iterator[None]:
    yield from _imported(scene, lambda archive: scene.shell(f"qimport -e replace -y {archive}"))


@way(ARRIVE, SHARED)
def qimport_of_a_queue_that_is_gone(scene: Scene) -> Iterator[None]:
    def does(archive: Path) -> None:
        scene.space.destroy_queue("Q", force=True)
        scene.shell(f"qimport -e skip -y {archive}")

    yield from _imported(scene, does)


@way(ARRIVE, SHARED)
def qimport_of_the_queue_space_by_another_name(scene: Scene) -> Iterator[None]:
    yield from _imported(scene, lambda archive: scene.shell(f"qimport -r COPY -y {archive}"))


@way(ARRIVE, SHARED)
def qmspark_import(scene: Scene) -> Iterator[None]:
    from qmadmin.transfer.import_planning import Existing, ImportOptions
    from qmadmin.transfer.importing import load_archive

    # What the program calls, be its work done by processes or on Spark.
    asked = ImportOptions(existing=Existing.APPEND)
    yield from _imported(scene, lambda archive: load_archive(archive, scene.config, asked))


@way(ARRIVE, ("file",))
def enqueue_that_another_process_does(scene: Scene) -> Iterator[None]:
    yield
    _handed_over(scene, lambda: scene.space.enqueue("Q", b"x"))


@way(ARRIVE, ("file",))
def reply_of_the_forwarder(scene: Scene) -> Iterator[None]:
    scene.space.enqueue("OTHER", b"x", reply_queue="Q")
    yield
    _forwarded(scene, ARRIVE, lambda: bool(scene.space.usage("Q").messages))


# ---- claims ---------------------------------------------------------------------------------------------------------

_CLAIMS: dict[str, Callable[[Scene], object]] = {
    "dequeue": lambda scene: scene.space.dequeue("Q"),
    "dequeue_by_msgid": lambda scene: scene.space.dequeue("Q", msgid="0" * 32),
    "dequeue_by_corrid": lambda scene: scene.space.dequeue("Q", corrid="c"),
    "dequeue_by_pattern": lambda scene: scene.space.dequeue("Q", corrid_like="c%"),
    "dequeue_by_condition": lambda scene: scene.space.dequeue("Q", condition="priority > 1"),
    "dequeue_many": lambda scene: scene.space.dequeue_many("Q", 5),
    "remove": lambda scene: scene.space.remove("Q"),
}
ways(CLAIM, **_CLAIMS)
ways(CLAIM, **{f"{name}_in_a_transaction": in_transaction(call) for name, call in _CLAIMS.items()})
ways(CLAIM, lock=in_transaction(lambda scene: scene.space.lock("Q")))


def _there(call: Callable[[Scene], object]) -> Callable[[Scene], Iterator[None]]:
    def steps(scene: Scene) -> Iterator[None]:
        scene.space.enqueue_many("Q", [b"x"] * 3, EnqueueControl(corrid=b"c"))
        yield
        call(scene)

    return steps


for _name, _call in (("dequeue", _CLAIMS["dequeue"]), ("dequeue_in_a_transaction", in_transaction(_CLAIMS["dequeue"]))):
    _steps = _there(_call)
    _steps.__name__ = f"{_name}_of_a_message_that_is_there"
    way(CLAIM)(_steps)


@way(CLAIM, SHARED)
def dequeue_on_a_connection(scene: Scene) -> Iterator[None]:
    scene.space.enqueue("Q", b"x")
    yield
    with scene.connection() as connection:
        scene.space.dequeue("Q", connection=connection)


@way(CLAIM)
def take_in_the_step_of_a_commit(scene: Scene) -> Iterator[None]:
    scene.space.enqueue("OTHER", b"request")
    scene.space.enqueue("Q", b"next")
    yield
    with scene.space.transaction() as transaction:
        assert scene.space.dequeue("OTHER")
        successor = transaction.successor(None)
        if transaction.commit_and_take([], successor, "Q"):
            return
    # As above.
    with scene.space.transaction():
        scene.space.dequeue("Q")


@way(CLAIM, SHARED)
def tpdequeue(scene: Scene) -> Iterator[None]:
    from qmadmin import atmi

    scene.space.enqueue("Q", b"x")
    with _joined(scene):
        yield
        atmi.tpdequeue("SPACE", "Q", atmi.TPQCTL())


@way(CLAIM, SHARED)
def qget(scene: Scene) -> Iterator[None]:
    scene.space.enqueue("Q", b"x")
    yield
    scene.shell("qget Q")


@way(CLAIM, ("file",))
def dequeue_that_another_process_does(scene: Scene) -> Iterator[None]:
    scene.space.enqueue("Q", b"x")
    yield
    _handed_over(scene, lambda: scene.space.dequeue("Q"))


@way(CLAIM, ("file",))
def request_of_the_forwarder(scene: Scene) -> Iterator[None]:
    scene.space.enqueue("Q", b"x")
    yield
    _forwarded(scene, CLAIM, lambda: not scene.space.usage("Q").messages)


# ---- commits --------------------------------------------------------------------------------------------------------


def _taken(scene: Scene, reply: dict[str, Any] | None) -> None:
    with scene.space.transaction():
        assert scene.space.dequeue("Q")
        if reply is not None:
            scene.space.enqueue("OTHER", b"reply", **reply)


def _commits(reply: dict[str, Any] | None) -> Callable[[Scene], object]:
    return lambda scene: _taken(scene, reply)


for _name, _reply in (
    ("commit", None),
    ("commit_with_a_reply", {"corrid": "c"}),
    ("commit_with_a_delayed_reply", {"delay": 9}),
    ("commit_with_a_large_reply", {"priority": 7, "headers": {"a": "b"}}),
):
    _steps = _there(_commits(_reply))
    _steps.__name__ = _name
    way(SETTLE)(_steps)


@way(SETTLE)
def commit_in_the_step_that_takes_the_next(scene: Scene) -> Iterator[None]:
    scene.space.enqueue_many("Q", [b"x", b"y"])
    yield
    with scene.space.transaction() as transaction:
        assert scene.space.dequeue("Q")
        transaction.commit_and_take([], None, "Q")


def _branch(call: Callable[[Scene], object]) -> Callable[[Scene], Iterator[None]]:
    def steps(scene: Scene) -> Iterator[None]:
        scene.space.enqueue("Q", b"x")
        yield
        scene.space.tpc_begin((1, b"global", b"branch"))
        try:
            assert scene.space.dequeue("Q")
            scene.space.enqueue("OTHER", b"reply")
            call(scene)
        finally:
            scene.space.tpc_rollback()

    return steps


for _name, _call in (
    ("tpc_prepare", lambda scene: scene.space.tpc_prepare()),
    ("tpc_commit", lambda scene: scene.space.tpc_commit()),
):
    _steps = _branch(_call)
    _steps.__name__ = _name
    way(SETTLE)(_steps)


@way(SETTLE, SHARED)
def tpcommit(scene: Scene) -> Iterator[None]:
    from qmadmin import atmi

    scene.space.enqueue("Q", b"x")
    with _joined(scene):
        yield
        atmi.tpbegin()
        atmi.tpdequeue("SPACE", "Q", atmi.TPQCTL())
        atmi.tpcommit()


@way(SETTLE, ("file",))
def commit_of_the_forwarder(scene: Scene) -> Iterator[None]:
    scene.space.enqueue("Q", b"x")
    yield
    _forwarded(scene, SETTLE, lambda: not scene.space.usage("Q").messages)


# ---- moves and changes ----------------------------------------------------------------------------------------------

ways(
    MOVE,
    move=lambda scene: scene.space.move("Q", "OTHER"),
    requeue=lambda scene: scene.space.requeue("Q"),
    unpark=lambda scene: scene.space.unpark("Q"),
    change_priority=lambda scene: scene.space.change_priority("Q", 7),
    change_availability=lambda scene: scene.space.change_availability("Q", 7),
    change_expiry=lambda scene: scene.space.change_expiry("Q", 7),
)
ways(
    MOVE,
    SHARED,
    qchangequeue=lambda scene: scene.shell("qset Q\nqchangequeue -y OTHER"),
    qchangeprio=lambda scene: scene.shell("qset Q\nqchangeprio -y 7"),
    qchangetime=lambda scene: scene.shell("qset Q\nqchangetime -y +7"),
    qchangeexptime=lambda scene: scene.shell("qset Q\nqchangeexptime -y +7"),
    qrequeue=lambda scene: scene.shell("qrequeue -y Q"),
    qunpark=lambda scene: scene.shell("qunpark -y Q"),
)


@way(MOVE)
def mib_set_of_a_message(scene: Scene) -> Iterator[None]:
    msgid = scene.space.enqueue("Q", b"x")
    yield
    scene.mib("T_APPQMSG", TA_APPQNAME="Q", TA_APPQMSGID=msgid, TA_PRIORITY=7)


# ---- what they share ------------------------------------------------------------------------------------------------


def _with_memory() -> Any:
    from tests.fix_store import space_definition

    return space_definition("MEMORY", memory=100 * 4096, ipc_key=77)


def _imported(scene: Scene, load: Callable[[Path], object]) -> Iterator[None]:
    """Export the queue space with a message in the queue, and load the archive."""
    scene.space.enqueue("Q", b"x")
    archive = scene.directory / "archive"
    scene.shell(f"qexport -s SPACE {archive}")
    yield
    load(archive)


@contextlib.contextmanager
def _joined(scene: Scene) -> Iterator[None]:
    """Join the device as an ATMI client."""
    from qmadmin import atmi

    atmi.tpinit(scene.config)
    try:
        yield
    finally:
        atmi.tpterm()


def _handed_over(scene: Scene, call: Callable[[], object]) -> None:
    """Make a call while another process has the writer, which does what is left to it in its own commit."""
    from tests.fix_handoff import SERVING, places_of
    from tests.fix_store import Work, eventually

    server = scene.start(SERVING, scene.config, "nowhere")
    server.expect("ready")
    server.say()
    server.expect("inside")
    work = Work(call)
    with contextlib.closing(places_of(attachment_of(scene.space).volume.path)) as places:
        eventually(lambda: not work.is_running() or places.any_posted(), "the call, or its request")
    server.say()
    server.expect("done")
    server.say()
    (found,) = work.results()
    if isinstance(found, Exception):
        raise found


_FORWARDER = """
from tests.ways import planting
from tests.ways.transitions import Transition
from qmadmin.forwarder.program import main

_, transition, device, directory = sys.argv
os.chdir(directory)
planting.plant(planting.refusing(Transition(int(transition)), "Q"))
sys.argv = ["tmqforward", device, "SPACE"]
main()
"""

_SERVICES = """
[services]
Q.command = ["cat"]
OTHER.command = ["cat"]
"""


def _forwarded(scene: Scene, transition: Transition, is_done: Callable[[], bool]) -> None:
    """Run the forwarder, with the rule planted in its process, until it has done its work or is refused."""
    from tests.fix_store import eventually

    (scene.directory / "services.toml").write_text(_SERVICES)
    child = scene.start(_FORWARDER, transition.value, scene.config, scene.directory)

    def log() -> str:
        return "".join(path.read_text() for path in scene.directory.glob("ULOG.*"))

    eventually(lambda: planting.WORDS in log() or is_done(), "the work, or the refusal")
    child.signal(signal.SIGTERM)
    child.process.wait()
    if planting.WORDS in (words := log()):
        raise RefusedError(words)
