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

Queue spaces are opened when they are first named, and every thread has its own transaction, which tpsuspend() and
tpresume() pass to another thread or process. A forked process is not in
a transaction, and stays joined.

Each flag and each error has a text about its meaning to the two calls, such as `TPNOTRAN.enqueue` and
`TPNOTRAN.dequeue`; the manual pages tpenqueue(3) and tpdequeue(3) list them all.

Failures and the transaction: after QMESYSTEM and QMEOS from the store, after QMEABORTED and after TPEOTYPE it can only
be aborted; calls then fail with QMEABORTED, and tpcommit() with TPEABORT. After its timeout calls fail with TPETIME.
All other failures leave it as it was, including QMESYSTEM when no action is free.

Diagnostics that do not occur: QMETRAN and QMEINUSE, as since release 7.1 of Tuxedo; QMEPROTO, as a transaction covers
all volumes of the device; QMESHARE and QMEINVHANDLE, which belong to another interface. Unlike in Tuxedo's manual, a
dequeue can fail with QMENOSPACE: it may begin one more of the transactions that the queue space limits.
"""

from __future__ import annotations

from qmadmin.atmi.calls import *
from qmadmin.atmi.control import *
from qmadmin.atmi.errno import *

# Written out, because type checkers read it so; it is what the three list.
__all__ = [
    "ERROR_NAMES", "QMEABORTED", "QMEBADMSGID", "QMEBADQUEUE", "QMEBADRMID", "QMEINUSE", "QMEINVAL", "QMEINVHANDLE",
    "QMENOMSG", "QMENOSPACE", "QMENOTA", "QMENOTOPEN", "QMEOS", "QMEPROTO", "QMERELEASE", "QMESHARE", "QMESYSTEM",
    "QMETRAN", "TMCORRIDLEN", "TMMSGIDLEN", "TMQNAMELEN", "TPABSOLUTE", "TPEABORT", "TPEBADDESC", "TPEBLOCK",
    "TPEDIAGNOSTIC", "TPEEVENT", "TPEHAZARD", "TPEHEURISTIC", "TPEINVAL", "TPEITYPE", "TPELIMIT", "TPEMATCH", "TPEMIB",
    "TPENOENT", "TPEOS", "TPEOTYPE", "TPEPERM", "TPEPROTO", "TPERELEASE", "TPERMERR", "TPESVCERR", "TPESVCFAIL",
    "TPESYSTEM", "TPETIME", "TPETRAN", "TPGOTSIG", "TPNOBLOCK", "TPNOCHANGE", "TPNOFLAGS", "TPNOTIME", "TPNOTRAN",
    "TPQBEFOREMSGID", "TPQCORRID", "TPQCTL", "TPQDELIVERYQOS", "TPQEXPTIME_ABS", "TPQEXPTIME_NONE", "TPQEXPTIME_REL",
    "TPQFAILUREQ", "TPQGETBYCORRID", "TPQGETBYCORRIDOLD", "TPQGETBYMSGID", "TPQGETBYMSGIDOLD", "TPQMSGID", "TPQPEEK",
    "TPQPRIORITY", "TPQQOSDEFAULTPERSIST", "TPQQOSNONPERSISTENT", "TPQQOSPERSISTENT", "TPQREPLYQ", "TPQREPLYQOS",
    "TPQTIME_ABS", "TPQTIME_REL", "TPQTOP", "TPQWAIT", "TPSIGRSTRT", "TPTRANID", "TPTXCOMMITDLOG", "TP_CMT_COMPLETE",
    "TP_CMT_LOGGED", "TPException", "tpabort", "tpbegin", "tpcommit", "tpdequeue", "tpenqueue", "tpgetlev",
    "tpinit", "tpresume", "tpscmt", "tpsprio", "tpsuspend", "tpterm",
]  # fmt: skip
