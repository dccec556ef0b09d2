"""The procedure for replies: a client finds the answer to each of its requests, also where the service failed.

    replies.py

Everything is made in a temporary directory and goes with it. The client puts two requests on the queue STRING, with a
correlation identifier of its own, a reply queue and a failure queue. The service, here in the same program, answers
the one on the reply queue and the other on the failure queue, in the transaction in which it took the request. The
client looks for each answer by the correlation identifier, in the reply queue first and then in the failure queue.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import qmadmin
from qmadmin.atmi import (
    QMENOMSG,
    TPQCORRID,
    TPQCTL,
    TPQDELIVERYQOS,
    TPQFAILUREQ,
    TPQGETBYCORRID,
    TPQMSGID,
    TPQREPLYQ,
    TPQREPLYQOS,
    TPException,
    tpabort,
    tpbegin,
    tpcommit,
    tpdequeue,
    tpenqueue,
    tpgetlev,
    tpinit,
    tpterm,
)

SPACE = "QSPACE"
QUEUES = ("STRING", "RPLYQ", "FAILQ", "ERRQUE")
REQUESTS = {b"request 1": "this is a q example", b"request 2": "4711"}


def main() -> None:
    """Show the procedure."""
    assert __doc__ is not None
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage="%(prog)s"
    ).parse_args()
    with tempfile.TemporaryDirectory(prefix="qsample.") as directory:
        device = Path(directory) / "QUE"
        lay_out(device)
        tpinit(device)
        try:
            for corrid, text in REQUESTS.items():
                send(corrid, text)
            for _ in REQUESTS:
                serve()
            for corrid in REQUESTS:
                print(f"{corrid.decode()}: {find_answer(corrid)}")
        finally:
            if tpgetlev():
                tpabort()
            tpterm()


def lay_out(path: Path) -> None:
    """Create the device, the queue space, and the queues: that for requests, and those for what becomes of them."""
    with qmadmin.create_device(path, 200) as device:
        device.create_space(
            qmadmin.SpaceDefinition(
                name=SPACE,
                ipc_key=230460,
                pages=100,
                queues=len(QUEUES),
                transactions=5,
                processes=5,
                messages=50,
                error_queue="ERRQUE",
            )
        )
        with device.open_space(SPACE) as space:
            for name in QUEUES:
                space.create_queue(qmadmin.QueueDefinition(name=name))


def send(corrid: bytes, text: str) -> None:
    """Put a request on its queue. The correlation identifier is what the client has to remember."""
    control = TPQCTL(
        flags=TPQCORRID | TPQREPLYQ | TPQFAILUREQ | TPQMSGID,
        corrid=corrid,
        replyqueue="RPLYQ",
        failurequeue="FAILQ",
    )
    tpenqueue(SPACE, "STRING", control, text)
    print(f"{corrid.decode()}: sent {text!r}")


def serve() -> None:
    """Work on a request and answer it; either both happen or neither."""
    tpbegin()
    request = TPQCTL(flags=TPQCORRID | TPQREPLYQ | TPQFAILUREQ | TPQREPLYQOS)
    text = (tpdequeue(SPACE, "STRING", request) or b"").decode()
    try:
        answer, code, queue = upper(text), 0, request.replyqueue
    except ValueError as error:
        answer, code, queue = str(error), 1, request.failurequeue
    if queue:
        # The flags for what the request has not are off by now.
        control = TPQCTL(flags=request.flags & TPQCORRID, corrid=request.corrid, urcode=code)
        if request.flags & TPQREPLYQOS:
            control.flags |= TPQDELIVERYQOS
            control.delivery_qos = request.reply_qos
        tpenqueue(SPACE, queue, control, answer)
    tpcommit()


def upper(text: str) -> str:
    """Return a text in upper case."""
    if not any(character.isalpha() for character in text):
        raise ValueError(f"there is no letter in {text!r}")
    return text.upper()


def find_answer(corrid: bytes) -> str:
    """Look for the answer to a request, and tell what and where it is."""
    for queue in ("RPLYQ", "FAILQ"):
        control = TPQCTL(
            flags=TPQCORRID | TPQREPLYQ | TPQFAILUREQ | TPQMSGID | TPQGETBYCORRID,
            corrid=corrid,
        )
        try:
            data = tpdequeue(SPACE, queue, control)
        except TPException as error:
            if error.diagnostic != QMENOMSG:
                raise
        else:
            return f"{(data or b'').decode()!r} from {queue}, user return code {control.urcode}"
    return "no answer yet"


if __name__ == "__main__":
    try:
        main()
    except TPException as problem:
        sys.exit(f"replies: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
