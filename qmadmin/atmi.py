"""The queue calls of ATMI, for code that thinks in Tuxedo: tpinit, tpbegin, tpenqueue, tpdequeue and their kin.

Names, flags, values and error numbers are those of tpenqueue(3c) and tpdequeue(3c). What C returns through pointers
comes back as values and in the TPQCTL; where C returns -1, TPException is raised. The queue space argument is the
queue space's own name: there is no server between the caller and the queue.

    from qmadmin.atmi import *

    tpinit("QUE")
    ctl = TPQCTL(flags=TPQCORRID | TPQREPLYQ, corrid=b"order-17", replyqueue="RPLYQ")
    tpenqueue("QSPACE", "STRING", ctl, b"this is a q example")
    ctl = TPQCTL(flags=TPQGETBYCORRID | TPQWAIT, corrid=b"order-17")
    reply = tpdequeue("QSPACE", "RPLYQ", ctl)
    tpterm()

Queue spaces are opened when they are first named, and every thread has its own transaction. A forked process is in
none, and stays joined.

Flags of the calls:

TPNOTRAN     The call has no part in the transaction of this thread; it still ends when that one's time is over.
TPNOBLOCK    TPEBLOCK where another writer keeps the file for longer than a write takes, a tenth of a second. It has
             nothing to do with waiting for a message, which TPQWAIT asks for.
TPNOTIME     A writer that keeps the file is waited for without limit; without the flag it is TPETIME after 30
             seconds. It does not prolong TPQWAIT, which ends with the timeout of the transaction, or of tpinit().
TPSIGRSTRT   A signal does not end the wait. Without the flag a wait for a message, and one that TPNOTIME asks for, is
             TPGOTSIG after a signal that the program handles. Only the main thread gets signals. A handler that
             raises, as that of Ctrl-C does, ends the call with what it raises.
TPNOCHANGE   tpdequeue: TPEOTYPE where the message is not of the type that the caller expects. It stays in the queue.

Failures and the transaction: after QMESYSTEM and QMEOS from the store, after QMEABORTED and after TPEOTYPE it can only
be aborted; calls are QMEABORTED then, and tpcommit() is TPEABORT. After its timeout calls are TPETIME. All other
failures leave it as it was: QMESYSTEM for want of an action too, which the store has no part in.

Diagnostics that do not happen: QMETRAN and QMEINUSE, as since release 7.1 of Tuxedo; QMESHARE and QMEINVHANDLE, which
belong to another interface. Where Tuxedo's page names none, QMENOSPACE happens to a dequeue as well: in a transaction
it is one more of those that the queue space limits.
"""

from __future__ import annotations

from qmadmin import tpcalls, tperrno, tpqctl
from qmadmin.tpcalls import *
from qmadmin.tperrno import *
from qmadmin.tpqctl import *

__all__: list[str] = []
__all__ += tpcalls.__all__
__all__ += tperrno.__all__
__all__ += tpqctl.__all__
