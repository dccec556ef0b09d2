"""What a command says of its outcome beside its output and its exit status: lines `NAME=VALUE` on QM_OUTCOME."""

from __future__ import annotations

import dataclasses
import math
from typing import Final

from qmadmin.consumers.handler import Body, Failure, Reply, Unavailable
from qmadmin.settings import SECONDS_MAX
from qmcore import times

NAMES: Final = {
    "urcode": "the user return code of the reply, a whole number",
    "type": "the type of the reply, such as `STRING`",
    "header.NAME": "a header of the reply",
    "permanent": "`true`: trying again is of no use, and the message goes to the error queue at once",
    "retry_after": "the seconds until the message, or with `unavailable` its queue, is tried again",
    "unavailable": "`true`: no message can be processed at present; this does not count as a try, and the queue is"
    " paused",
}
"""What can be said, for the manual."""

_HEADER: Final = "header."


@dataclasses.dataclass(slots=True)
class Outcome:
    """What was said. The last three only matter for a call that has failed."""

    urcode: int = 0
    type: str | None = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    permanent: bool = False
    retry_after: float | None = None
    unavailable: bool = False

    @classmethod
    def parse(cls, said: bytes) -> Outcome:
        """Read the lines; ValueError for one that has no meaning."""
        outcome = cls()
        for line in said.decode(errors="replace").splitlines():
            if line.strip():
                outcome._take(line)
        return outcome

    def reply(self, body: Body) -> Reply:
        """Return the reply of a call that went well."""
        return Reply(body, self.urcode, self.type, self.headers or None)

    def failure(self, reason: str, body: Body) -> Failure | Unavailable:
        """Return how a call failed that did not go well."""
        if self.unavailable:
            return Unavailable(reason, retry_after=self.retry_after)
        return Failure(
            reason,
            body=body,
            urcode=self.urcode,
            type=self.type,
            headers=self.headers or None,
            permanent=self.permanent,
            retry_after=self.retry_after,
        )

    def _take(self, line: str) -> None:
        name, equals, value = line.partition("=")
        name, value = name.strip(), value.strip()
        if not equals:
            raise ValueError(f"{line!r} is not a line of the form NAME=VALUE")
        match name:
            case "urcode":
                self.urcode = _whole(value)
            case "type":
                self.type = value
            case "permanent" | "unavailable":
                setattr(self, name, _flag(value))
            case "retry_after":
                self.retry_after = _seconds(value)
            case _ if name.startswith(_HEADER) and name != _HEADER:
                self.headers[name.removeprefix(_HEADER)] = value
            case _:
                raise ValueError(f"{name!r} is none of {', '.join(NAMES)}")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"urcode must be a whole number, got {text!r}") from None


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _seconds(text: str) -> float:
    try:
        seconds = float(times.in_seconds(text))
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= SECONDS_MAX:
        raise ValueError(f"retry_after must be seconds, got {text!r}")
    return seconds
