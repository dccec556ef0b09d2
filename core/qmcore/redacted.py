"""Passwords are removed from everything that is shown or stored: messages, logs, records and histories."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"
"""Replaces a password."""

_DATABASE: Final = r"\b(postgres(?:ql)?(?:\+\w+)?://)(\S*)"
_NO_PORT: Final = r"(?!\[)[^:/@?]*:(?!\*|\d*(?:[/?,'\")]|$))"
_OTHER_URL: Final = r"(\b\w[\w+.-]{0,30}://)[^\s/?#'\"@:]*:[^\s/?#'\"]*@"
_MISTYPED: Final = r"(\b(?:pos|pg)[\w+]*[:;/\\]{1,3})(?!//)[^\s:@'\"]*:[^\s'\"]*@"
"""What was meant for a URL of PostgreSQL and is not one, as `postgresql//ann:secret@host` or `postgres:ann:x@host`."""
_IN_PATH: Final = r"(/)[^\s/?#'\"@:]+:[^\s/?#'\"]*@"
"""The same of any kind, where it is taken for the name of a file."""
_QUOTED: Final = r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\""
_WORD: Final = r"[^\s&'\"][^\s&]*?(?=['\",;)]{0,4}(?:[\s&]|$))"
_PARAMETER: Final = rf"(password\s*=\s*)(?:{_QUOTED}|{_WORD})"
_BEHIND: Final = "'\",;)"
"""What may follow a URL in a sentence, and does not belong to it."""
_KNOWN: Final = frozenset(
    (
        *("schema", "service", "host", "hostaddr", "port", "dbname", "passfile", "connect_timeout", "application_name"),
        *("sslmode", "sslrootcert", "sslcert", "sslkey", "channel_binding", "gssencmode"),
        *("target_session_attrs", "load_balance_hosts"),
    )
)
"""The parameters of libpq that people need to see and that are not secret."""


def redacted(text: str) -> str:
    """Return a text without the passwords that are in it.

    In a URL of PostgreSQL the user is removed too, and the values of all parameters that are not known to be harmless:
    a password may be there under a wrong name. In other URLs user and password are removed where there are both, and so
    they are in what looks like a mistyped one. Of `password=...`, as libpq and the environment know it, the value is
    removed.
    """
    if "://" in text:
        text = re.sub(_DATABASE, _without_user, text, flags=re.IGNORECASE)
        text = re.sub(_OTHER_URL, rf"\1{HIDDEN}@", text)
    if "@" in text and ":" in text:
        text = re.sub(_MISTYPED, rf"\1{HIDDEN}@", text, flags=re.IGNORECASE)
        text = re.sub(_IN_PATH, rf"\1{HIDDEN}@", text)
    if "=" in text:
        text = re.sub(_PARAMETER, rf"\1{HIDDEN}", text, flags=re.IGNORECASE)
    return text


def _without_user(found: re.Match[str]) -> str:
    scheme, rest = found[1], found[2]
    # A password that is not quoted as a URL requires may have any characters: all up to the last @ is removed.
    _, at, rest = rest.rpartition("@")
    # A truncated URL has no @ any more; what is not a port then is not a host either.
    if not at and re.match(_NO_PORT, rest):
        return f"{scheme}{HIDDEN}"
    place, question, query = rest.partition("?")
    parameters = "&".join(_harmless(parameter) for parameter in query.split("&"))
    return f"{scheme}{HIDDEN if at else ''}{at}{place}{question}{parameters}"


def _harmless(parameter: str) -> str:
    """Return a parameter of a URL, its value hidden where it may be a password under any name."""
    name, equals, _ = parameter.partition("=")
    if name.lower() in _KNOWN or not parameter.strip(_BEHIND):
        return parameter
    behind = parameter[len(parameter.rstrip(_BEHIND)) :]
    return f"{name}{equals}{HIDDEN}{behind}" if equals else f"{HIDDEN}{behind}"
