"""How ATMI's calls fail: the values of tperrno and of TPQCTL's diagnostic, and TPException, which carries them."""

from __future__ import annotations

from typing import Final

from qmadmin.tpqctl import TPQCTL
from qmcore import errors
from qmcore.errors import (
    AbortedError,
    BadResourceError,
    InvalidArgumentError,
    OperatingSystemError,
    QueueError,
    ReleaseError,
)

TPEABORT: Final = 1
TPEBADDESC: Final = 2
TPEBLOCK: Final = 3
TPEINVAL: Final = 4
TPELIMIT: Final = 5
TPENOENT: Final = 6
TPEOS: Final = 7
TPEPERM: Final = 8
TPEPROTO: Final = 9
TPESVCERR: Final = 10
TPESVCFAIL: Final = 11
TPESYSTEM: Final = 12
TPETIME: Final = 13
TPETRAN: Final = 14
TPGOTSIG: Final = 15
TPERMERR: Final = 16
TPEITYPE: Final = 17
TPEOTYPE: Final = 18
TPERELEASE: Final = 19
TPEHAZARD: Final = 20
TPEHEURISTIC: Final = 21
TPEEVENT: Final = 22
TPEMATCH: Final = 23
TPEDIAGNOSTIC: Final = 24
TPEMIB: Final = 25

QMEINVAL: Final = errors.InvalidArgumentError.number
QMEBADRMID: Final = errors.BadResourceError.number
QMENOTOPEN: Final = errors.NotOpenError.number
QMETRAN: Final = errors.TransactionStartError.number
QMEBADMSGID: Final = errors.BadMessageIdError.number
QMESYSTEM: Final = errors.SystemFailureError.number
QMEOS: Final = errors.OperatingSystemError.number
QMEABORTED: Final = errors.AbortedError.number
QMENOTA: Final = QMEABORTED
QMEPROTO: Final = errors.ProtocolError.number
QMEBADQUEUE: Final = errors.BadQueueError.number
QMENOMSG: Final = errors.NoMessageError.number
QMEINUSE: Final = errors.InUseError.number
QMENOSPACE: Final = errors.NoSpaceError.number
QMERELEASE: Final = errors.ReleaseError.number
QMEINVHANDLE: Final = errors.InvalidHandleError.number
QMESHARE: Final = errors.ShareError.number

ERROR_NAMES: Final[dict[int, str]] = {
    value: name
    for name, value in sorted(globals().items())
    if name.startswith(("TPE", "TPGOTSIG")) and isinstance(value, int)
}
"""The names of the values of tperrno."""

__all__ = [
    "ERROR_NAMES",
    "QMEABORTED",
    "QMEBADMSGID",
    "QMEBADQUEUE",
    "QMEBADRMID",
    "QMEINUSE",
    "QMEINVAL",
    "QMEINVHANDLE",
    "QMENOMSG",
    "QMENOSPACE",
    "QMENOTA",
    "QMENOTOPEN",
    "QMEOS",
    "QMEPROTO",
    "QMERELEASE",
    "QMESHARE",
    "QMESYSTEM",
    "QMETRAN",
    "TPEABORT",
    "TPEBADDESC",
    "TPEBLOCK",
    "TPEDIAGNOSTIC",
    "TPEEVENT",
    "TPEHAZARD",
    "TPEHEURISTIC",
    "TPEINVAL",
    "TPEITYPE",
    "TPELIMIT",
    "TPEMATCH",
    "TPEMIB",
    "TPENOENT",
    "TPEOS",
    "TPEOTYPE",
    "TPEPERM",
    "TPEPROTO",
    "TPERELEASE",
    "TPERMERR",
    "TPESVCERR",
    "TPESVCFAIL",
    "TPESYSTEM",
    "TPETIME",
    "TPETRAN",
    "TPGOTSIG",
    "TPException",
]


class TPException(Exception):
    """A call failed: `tperrno` is one of the TPE values, `diagnostic` the QME number where that is TPEDIAGNOSTIC."""

    def __init__(self, tperrno: int, message: str, diagnostic: int = 0) -> None:
        super().__init__(tperrno, message, diagnostic)
        self.tperrno = tperrno
        self.message = message
        self.diagnostic = diagnostic

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"

    @property
    def name(self) -> str:
        """The name of the tperrno value."""
        return ERROR_NAMES[self.tperrno]


def failure(error: QueueError, ctl: TPQCTL, *, time_is_over: bool) -> TPException:
    """Return what a queue call raises for a diagnostic, which is noted in its control structure.

    `time_is_over`: the transaction that the call belongs to has outlived its timeout.
    """
    ctl.diagnostic = 0
    if isinstance(error, BadResourceError):
        return TPException(TPENOENT, str(error))
    if (isinstance(error, AbortedError) and time_is_over) or is_blocked(error):
        return TPException(TPETIME, str(error))
    ctl.diagnostic = error.number
    return TPException(TPEDIAGNOSTIC, f"{error.name}: {error}", error.number)


def failure_to_join(error: QueueError) -> TPException:
    """Return what a call raises that has no control structure."""
    for kind, tperrno in _WITHOUT_CONTROL.items():
        if isinstance(error, kind):
            return TPException(tperrno, str(error))
    return TPException(TPESYSTEM, str(error))


def failure_to_commit(error: QueueError) -> TPException:
    """Return what tpcommit raises: nothing of the transaction remains, unless nobody can tell."""
    if error.facts.get("unknown"):
        return TPException(TPEHAZARD, f"whether the transaction was committed is unknown: {error}")
    return TPException(TPEABORT, f"the transaction was rolled back: {error}")


def is_blocked(error: QueueError) -> bool:
    """Tell whether a call gave up because somebody else has been writing for too long."""
    return bool(error.facts.get("blocked"))


_WITHOUT_CONTROL: Final[dict[type[QueueError], int]] = {
    BadResourceError: TPENOENT,
    InvalidArgumentError: TPEINVAL,
    OperatingSystemError: TPEOS,
    ReleaseError: TPERELEASE,
}
