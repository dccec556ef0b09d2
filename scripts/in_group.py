"""Run a command in a process group of its own and leave nothing of it running: `in_group.py COMMAND [ARGUMENT ...]`.

The exit status is the command's; 128 and the signal's number when a signal ended the run. Standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

# Seconds that the processes get to finish what they hold.
PATIENCE = 10.0

ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def run(command: list[str]) -> int:
    """Run the command to its end, or until a signal asks for one; then end the rest of its group."""
    received: list[int] = []
    # Noted, not raised: an exception between the start of the child and the line after it would lose the child.
    for number in ENDING:
        signal.signal(number, lambda number, _: received.append(number))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    while not received:
        try:
            status = process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
        end(process)
        return status if status >= 0 else 128 - status
    end(process)
    return 128 + received[0]


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask the group to end, wait for it, then end the stubborn by force."""
    deadline = time.monotonic() + PATIENCE
    tell(process, signal.SIGTERM)
    while is_alive(process) and time.monotonic() < deadline:
        time.sleep(0.02)
    tell(process, signal.SIGKILL)
    process.wait()


def tell(process: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to the group; False when nobody is left in it."""
    try:
        os.killpg(process.pid, number)
    except (PermissionError, ProcessLookupError):
        return False
    return True


def is_alive(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process is left in the group. A leader that has ended is reaped first, or it would count."""
    process.poll()
    return tell(process, 0)


if __name__ == "__main__":
    try:
        sys.exit(run(sys.argv[1:]))
    except OSError as problem:
        print(f"{sys.argv[1]}: {problem.strerror}", file=sys.stderr)
        sys.exit(2)
