"""The queue calls of ATMI, for code that was written for Tuxedo: tpinit, tpbegin, tpenqueue, tpdequeue and others.

Names, flags, values and error numbers are those of tpenqueue(3c) and tpdequeue(3c). Results that C returns through
pointers are return values or in the TPQCTL; where C returns -1, TPException is raised. The queue space argument is the
name of the queue space, or one that QMALIASES maps to it (`QMALIASES=TMQUEUE=QSPACE`): there is no server between the
caller and the queue.

    from qmadmin.atmi import *

    tpinit("QUE")
    ctl = TPQCTL(flags=TPQCORRID | TPQREPLYQ, corrid=b"order-17", replyqueue="RPLYQ")
    tpenqueue("QSPACE", "STRING", ctl, b"this is a q example")
    ctl = TPQCTL(flags=TPQGETBYCORRID | TPQWAIT, corrid=b"order-17")
    reply = tpdequeue("QSPACE", "RPLYQ", ctl)
    tpterm()

Queue spaces are opened when they are first named, and every thread has its own transaction. A forked process is not in
a transaction, and stays joined.

Each flag and each error has a text about its meaning to the two calls, such as `TPNOTRAN.enqueue` and
`TPNOTRAN.dequeue`; the manual pages tpenqueue(3) and tpdequeue(3) list them all.

Failures and the transaction: after QMESYSTEM and QMEOS from the store, after QMEABORTED and after TPEOTYPE it can only
be aborted; calls then fail with QMEABORTED, and tpcommit() with TPEABORT. After its timeout calls fail with TPETIME.
All other failures leave it as it was, including QMESYSTEM when no action is free.

Diagnostics that do not occur: QMETRAN and QMEINUSE, as since release 7.1 of Tuxedo; QMESHARE and QMEINVHANDLE, which
belong to another interface. Unlike in Tuxedo's manual, a dequeue can fail with QMENOSPACE: it may begin one more of the
transactions that the queue space limits.
"""

from __future__ import annotations

from qmadmin.atmi import calls, control, errno
from qmadmin.atmi.calls import *
from qmadmin.atmi.control import *
from qmadmin.atmi.errno import *

__all__: list[str] = []
__all__ += calls.__all__
__all__ += errno.__all__
__all__ += control.__all__
