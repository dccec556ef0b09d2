"""The management information base: how programs administer queue spaces, queues, messages and transactions.

    from qmadmin import mib

    mib.set("QUE", "T_APPQ", {"TA_STATE": "NEW", "TA_APPQSPACENAME": "QS", "TA_APPQNAME": "STRING"})
    for queue in mib.get("QUE", "T_APPQ", {"TA_APPQSPACENAME": "QS"}):
        print(queue["TA_APPQNAME"], queue["TA_CURMSG"])

Classes, attributes, states and rules are those of Tuxedo's APPQ_MIB(5); `describe` lists them, and the differences. The
device is an open `Device`, or the path of one.
"""

from __future__ import annotations

from qmadmin.mib.declare import Code, Flags, MibError, Value, Values
from qmadmin.mib.requests import CLASSES, describe, get, stream
from qmadmin.mib.requests import apply as set  # noqa: A004 - the operation's own name; read as mib.set

QMIB_FORCECLOSE = Flags.QMIB_FORCECLOSE
QMIB_FORCEPURGE = Flags.QMIB_FORCEPURGE
QMIB_FORCEDELETE = Flags.QMIB_FORCEDELETE

__all__ = [
    "CLASSES", "QMIB_FORCECLOSE", "QMIB_FORCEDELETE", "QMIB_FORCEPURGE", "Code", "Flags", "MibError", "Value", "Values",
    "describe", "get", "set", "stream",
]  # fmt: skip
