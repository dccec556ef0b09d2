"""Lets clients ask services through forwarders that are killed, stopped and reloaded, then balances the books.

The services fail, hang and die at random. In the end each request whose enqueue has returned has to have exactly one of
a reply, an entry in the error queue, and a place in its queue. The exit status is 1 where one has not, or a program has
done what it should not; the journals and logs are kept then.
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
from pathlib import Path

from postgres_server import NoServerError, durable_server

from soaking.forwarding import site
from soaking.forwarding.books import balance
from soaking.forwarding.overseer import Overseer
from soaking.journal import read


def main() -> int:
    """Run what the arguments ask for, and return the exit status."""
    asked = _parser().parse_args()
    seed = asked.seed if asked.seed is not None else secrets.randbelow(2**32)
    print(f"seed {seed}, {asked.minutes:g} minutes", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="qmadmin-soak-", dir=asked.directory))
    well = False
    try:
        with contextlib.ExitStack() as resources:
            url = str(directory / "QUE")
            if asked.postgres:
                url = resources.enter_context(durable_server(asked.directory, {"max_connections": "300"})).url
            well = _soak(asked, url, directory, seed)
    except NoServerError as error:
        print(f"scripts/soak: {error}", file=sys.stderr)
        return 2
    finally:
        if well and not asked.keep:
            shutil.rmtree(directory)
        else:
            print(f"the journals and logs are in {directory}")
    return 0 if well else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/soak forward", description=__doc__)
    parser.add_argument("-m", "--minutes", type=float, default=30, help="how long the clients work (default 30)")
    parser.add_argument("--calm", type=float, default=30, help="seconds to work off the rest in calm (default 30)")
    parser.add_argument("-f", "--forwarders", type=int, default=3, help="how many there are at a time (default 3)")
    parser.add_argument("-c", "--clients", type=int, default=2, help="how many there are (default 2)")
    parser.add_argument("-d", "--directory", type=Path, default=Path("/var/tmp"),  # noqa: S108 - it is on a disk
                        help="where the device and the journals are (default /var/tmp)")  # fmt: skip
    parser.add_argument("--seed", type=int, help="of what is killed when (default: another one each time)")
    parser.add_argument("--postgres", action="store_true", help="on a device on PostgreSQL instead of one in a file")
    parser.add_argument("--keep", action="store_true", help="leave the journals and logs")
    return parser


def _soak(asked: argparse.Namespace, url: str, directory: Path, seed: int) -> bool:
    clients = [f"client{number}" for number in range(asked.clients)]
    # In another process: this one, which the clients are forked from, opens nothing before.
    process = multiprocessing.get_context("fork").Process(target=site.create, args=(url, clients))
    process.start()
    process.join()
    if process.exitcode:
        raise NoServerError("the queue space cannot be created")
    site.lay_out_services(directory)
    overseer = Overseer(url, directory, seed, asked.forwarders, clients)
    overseer.run(asked.minutes * 60, asked.calm)
    left = overseer.left()
    books = balance(itertools.chain.from_iterable(read(path) for path in overseer.journals()), left)
    books.problems[:0] = overseer.problems
    print("forwarders: " + ", ".join(f"{count:,} {act}" for act, count in sorted(overseer.acts.items())))
    print(f"forwarders that a service took with it: {overseer.ended:,}")
    print("\n".join(books.lines()))
    return not books.problems


if __name__ == "__main__":
    sys.exit(main())
