"""Passwords are taken out of whatever is shown or kept: messages, logs, records and histories."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"
"""What stands in the place of a password."""

_DATABASE: Final = r"\b(postgres(?:ql)?(?:\+\w+)?://)(\S*)"
_NO_PORT: Final = r"(?!\[)[^:/@?]*:(?!\*|\d*(?:[/?,'\")]|$))"
_OTHER_URL: Final = r"(\b\w[\w+.-]{0,30}://)[^\s/?#'\"@:]*:[^\s/?#'\"]*@"
_QUOTED: Final = r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\""
_WORD: Final = r"[^\s&'\"][^\s&]*?(?=['\",;)]{0,4}(?:[\s&]|$))"
_PARAMETER: Final = rf"(password\s*=\s*)(?:{_QUOTED}|{_WORD})"


def redacted(text: str) -> str:
    """Return a text without the passwords that are in it.

    In a URL of PostgreSQL the user goes too, as all that may have been meant for a password; in other URLs user and
    password where there are both. Of `password=...`, as libpq and the environment know it, the value goes.
    """
    if "://" in text:
        text = re.sub(_DATABASE, _without_user, text, flags=re.IGNORECASE)
        text = re.sub(_OTHER_URL, rf"\1{HIDDEN}@", text)
    if "=" in text:
        text = re.sub(_PARAMETER, rf"\1{HIDDEN}", text, flags=re.IGNORECASE)
    return text


def _without_user(found: re.Match[str]) -> str:
    scheme, rest = found[1], found[2]
    # A password that was not written as a URL wants it may have any signs in it: all up to the last @ goes.
    at = rest.rfind("@")
    if at >= 0:
        return f"{scheme}{HIDDEN}{rest[at:]}"
    # One that was cut off has no @ any more; what is no port then is no host either.
    return f"{scheme}{HIDDEN}" if re.match(_NO_PORT, rest) else found[0]
