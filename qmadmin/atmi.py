"""The queue calls of ATMI, for code that thinks in Tuxedo: tpinit, tpbegin, tpenqueue, tpdequeue and their kin.

Names, flags, values and error numbers are those of tpenqueue(3c) and tpdequeue(3c). What C returns through pointers
comes back as values and in the TPQCTL; where C returns -1, TPException is raised. The queue space argument is the
queue space's own name, or one that QMALIASES gives it (`QMALIASES=TMQUEUE=QSPACE`): there is no server between the
caller and the queue.

    from qmadmin.atmi import *

    tpinit("QUE")
    ctl = TPQCTL(flags=TPQCORRID | TPQREPLYQ, corrid=b"order-17", replyqueue="RPLYQ")
    tpenqueue("QSPACE", "STRING", ctl, b"this is a q example")
    ctl = TPQCTL(flags=TPQGETBYCORRID | TPQWAIT, corrid=b"order-17")
    reply = tpdequeue("QSPACE", "RPLYQ", ctl)
    tpterm()

Queue spaces are opened when they are first named, and every thread has its own transaction. A forked process is in
none, and stays joined.

Every flag and every error says what it means to the two calls, as `TPNOTRAN.enqueue` and `TPNOTRAN.dequeue` do; the
manual pages tpenqueue(3) and tpdequeue(3) have all of them.

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
