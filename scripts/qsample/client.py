"""The client of the sample application: puts a string on the queue STRING and waits for the reply on RPLYQ.

QMCONFIG names the device.
"""

from __future__ import annotations

import os
import sys

from qmadmin.atmi import (
    TPQCORRID,
    TPQCTL,
    TPQGETBYCORRID,
    TPQREPLYQ,
    TPQWAIT,
    TPException,
    tpdequeue,
    tpenqueue,
    tpinit,
    tpterm,
)

SPACE = "QSPACE"
TEXT = "this is a q example"


def main() -> None:
    """Send the request and show what comes back."""
    print("before:", TEXT, flush=True)
    # Two clients at once must not take each other's reply.
    corrid = f"client {os.getpid()}"
    tpinit()
    tpenqueue(SPACE, "STRING", TPQCTL(flags=TPQCORRID | TPQREPLYQ, corrid=corrid, replyqueue="RPLYQ"), TEXT)
    reply = tpdequeue(SPACE, "RPLYQ", TPQCTL(flags=TPQGETBYCORRID | TPQWAIT, corrid=corrid))
    tpterm()
    print("after:", (reply or b"").decode())


if __name__ == "__main__":
    try:
        main()
    except TPException as error:
        sys.exit(f"client: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
