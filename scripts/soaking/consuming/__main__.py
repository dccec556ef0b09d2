"""Lets an application with handlers work in processes that are killed and stopped, then adds up what they have moved.

The handlers fail, put off, hang, exit and die at random. Each message is an amount, which a call divides among others.
In the end the sum of all amounts has to be what was enqueued. The exit status is 1 where it is not, or a process has
done what it should not; the logs are kept then.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from postgres_server import NoServerError, durable_server

from soaking.consuming import site
from soaking.consuming.overseer import Overseer, Sums


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
            print(f"the logs are in {directory}")
    return 0 if well else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/soak consume", description=__doc__)
    parser.add_argument("-m", "--minutes", type=float, default=30, help="how long it works (default 30)")
    parser.add_argument("--calm", type=float, default=30, help="seconds to work off the rest in calm (default 30)")
    parser.add_argument("-w", "--workers", type=int, default=3, help="how many processes there are (default 3)")
    parser.add_argument("-d", "--directory", type=Path, default=Path("/var/tmp"),  # noqa: S108 - it is on a disk
                        help="where the device and the logs are (default /var/tmp)")  # fmt: skip
    parser.add_argument("--seed", type=int, help="of what is killed when (default: another one each time)")
    parser.add_argument("--postgres", action="store_true", help="on a device on PostgreSQL instead of one in a file")
    parser.add_argument("--keep", action="store_true", help="leave the logs")
    return parser


def _soak(asked: argparse.Namespace, url: str, directory: Path, seed: int) -> bool:
    # In another process: no open device is inherited by what this one starts.
    process = multiprocessing.get_context("fork").Process(target=site.create, args=(url,))
    process.start()
    process.join()
    if process.exitcode:
        raise NoServerError("the queue space cannot be created")
    os.environ[site.DEVICE] = url
    overseer = Overseer(url, directory, seed, asked.workers)
    overseer.run(asked.minutes * 60, asked.calm)
    sums = Sums(overseer.entered, overseer.left())
    print("processes: " + ", ".join(f"{count:,} {act}" for act, count in sorted(overseer.acts.items())))
    verdict = "THE SUMS DO NOT BALANCE" if sums.problems else "the sums balance"
    print("\n".join([*sums.lines(), *overseer.problems, *sums.problems, verdict]))
    return not (overseer.problems or sums.problems)


if __name__ == "__main__":
    sys.exit(main())
