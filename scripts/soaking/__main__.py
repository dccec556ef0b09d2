"""Lets clients work on a queue space while they and the server are killed, then balances the books.

Producers and consumers work on it alone. Movers move messages from there to a queue space of another device, in a file,
and back, in transactions over both, of which they are the coordinators.

Every acknowledged enqueue has to be consumed exactly once by an acknowledged dequeue or commit, or to be stored in the
end. An operation whose outcome nobody can know (its client was killed in the call, or was told so) has happened as a
whole or not at all. The exit status is 1 where the books do not balance or a client has failed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from postgres_server import NoServerError, Server, durable_server

from soaking import space
from soaking.books import balance
from soaking.journal import Outcome, read
from soaking.overseer import Overseer


def main() -> int:
    """Run what the arguments ask for, and return the exit status."""
    asked = _parser().parse_args()
    seed = asked.seed if asked.seed is not None else secrets.randbelow(2**32)
    print(f"seed {seed}, {asked.minutes:g} minutes", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="qmadmin-soak-", dir=asked.directory))
    try:
        with contextlib.ExitStack() as resources:
            server = None
            url = str(directory / "QUE")
            if not asked.sqlite:
                server = resources.enter_context(durable_server(asked.directory, {"max_connections": "300"}))
                url = server.url
            well = _soak(asked, url, directory, server, seed)
    except NoServerError as error:
        print(f"scripts/soak: {error}", file=sys.stderr)
        return 2
    finally:
        if not asked.keep:
            shutil.rmtree(directory, ignore_errors=True)
    if asked.keep:
        print(f"the journals are in {directory}")
    return 0 if well else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("-m", "--minutes", type=float, default=30, help="how long the clients work (default 30)")
    parser.add_argument("-p", "--producers", type=int, default=4, help="how many there are at a time (default 4)")
    parser.add_argument("-c", "--consumers", type=int, default=4, help="how many there are at a time (default 4)")
    parser.add_argument("-v", "--movers", type=int, default=2, help="how many there are at a time (default 2)")
    parser.add_argument("-d", "--directory", type=Path, default=Path("/var/tmp"),  # noqa: S108 - it is on a disk
                        help="where the server and the journals are (default /var/tmp)")  # fmt: skip
    parser.add_argument("--seed", type=int, help="of what is killed when (default: another one each time)")
    parser.add_argument("--sqlite", action="store_true", help="on a device in a file; only clients are killed")
    parser.add_argument("--keep", action="store_true", help="leave the journals, and say where they are")
    return parser


def create(url: str, name: str) -> None:
    """Create a queue space in another process: this one, which the clients are forked from, opens nothing."""
    process = multiprocessing.get_context("fork").Process(target=space.create, args=(url, name))
    process.start()
    process.join()
    if process.exitcode:
        raise NoServerError("the queue space cannot be created")


def _soak(asked: argparse.Namespace, url: str, directory: Path, server: Server | None, seed: int) -> bool:
    away = str(directory / space.AWAY)
    create(url, space.SPACE)
    create(away, space.AWAY)
    overseer = Overseer({space.SPACE: url, space.AWAY: away}, directory, server, seed)
    overseer.run({"producer": asked.producers, "consumer": asked.consumers, "mover": asked.movers}, asked.minutes * 60)
    stored = overseer.empty()
    operations = itertools.chain.from_iterable(read(path) for path in overseer.journals())
    books = balance(operations, stored, overseer.counted)
    books.problems[:0] = overseer.problems
    moves = Counter(each.outcome for path in overseer.journals("mover") for each in read(path))
    print("killed: " + ", ".join(f"{what} {count:,} times" for what, count in overseer.kills.items()))
    print(f"transactions over both devices: {moves[Outcome.DONE]:,} and {moves[Outcome.UNKNOWN]:,} of unknown outcome")
    print("\n".join(books.lines()))
    return not books.problems


if __name__ == "__main__":
    sys.exit(main())
