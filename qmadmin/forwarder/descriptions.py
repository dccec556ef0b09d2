"""What the services file may say of a service: a dataclass for each kind, whose fields are the keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from qmadmin.forwarder import service_keys
from qmadmin.settings import SECONDS_MAX

WORKERS_MAX: Final = 1000
BATCH_MAX: Final = 1000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A service of any kind: `name` is that of its queue; the other fields are keys."""

    name: str
    workers: int | None = service_keys.key(
        service_keys.whole_number(1, WORKERS_MAX),
        "The most calls at the same time.",
        default=None,
        default_help="that of `--workers`",
    )
    order: str = service_keys.key(
        service_keys.one_of("skip", "strict", "parallel"),
        "How the order of the queue is kept. With `strict` a message that failed is tried again before any other, so"
        " that all messages behind it wait; there is only one worker. With `skip` the others go first while it waits"
        " for its next try. With `parallel` several workers take messages in order, and may finish in any order.",
        default="",
        default_help="that of `--order`",
    )
    batch: int | None = service_keys.key(
        service_keys.whole_number(1, BATCH_MAX),
        "The most messages that a worker takes at once; they are processed one after the other, and committed"
        " together.",
        default=None,
        default_help="that of `--batch`",
    )
    timeout: float | None = service_keys.key(
        service_keys.seconds(SECONDS_MAX),
        "The seconds that a call may take.",
        default=None,
        default_help="that of `-t`",
    )

    def conflict(self) -> str:
        """Return which keys do not go together, and why; empty where all is well."""
        if self.order == "strict" and (self.workers or 1) > 1:
            return f'order = "strict" requires workers = 1, got {self.workers}'
        return ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PythonDescription(Description):
    """A function in Python."""

    python: str = service_keys.key(
        service_keys.FUNCTION,
        "The function, as `module:name`. The module is searched for in the directory of the services file first.",
    )
    run: str = service_keys.key(
        service_keys.one_of("thread", "process"),
        "Where the function runs: in a thread of the daemon, or in a worker process; there are as many worker processes"
        " as calls at the same time.",
        default="thread",
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommandDescription(Description):
    """A command."""

    command: tuple[str, ...] = service_keys.key(
        service_keys.words('["tr", "a-z", "A-Z"]'),
        "The program and its arguments; no shell interprets them. A relative path with a slash is relative to the"
        " directory of the services file; a name without a slash is searched for in `PATH`.",
    )
    environment: Mapping[str, str] | None = service_keys.key(
        service_keys.table(
            '{NAME = "value"}', lambda name: bool(name) and "=" not in name and service_keys.is_text(name)
        ),
        "Variables of its environment, in addition to those of the daemon.",
        default=None,
        default_help="none",
    )
    directory: str | None = service_keys.key(
        service_keys.DIRECTORY,
        "The directory in which it runs; a relative path is relative to that of the services file.",
        default=None,
        default_help="the daemon's own",
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HttpDescription(Description):
    """A service that is reached by HTTP."""

    url: str = service_keys.key(
        service_keys.URL, "The address, which begins with http:// or https://. Proxies are not used."
    )
    method: str = service_keys.key(service_keys.HTTP_METHOD, "The method of the requests.", default="POST")
    headers: Mapping[str, str] | None = service_keys.key(
        service_keys.table('{Accept = "text/plain"}', service_keys.is_token, is_value=service_keys.is_line),
        "Headers of each request. They override the headers of the message.",
        default=None,
        default_help="none",
    )
    ca: str | None = service_keys.key(
        service_keys.FILE,
        "The file of the certificates with which the certificate of the server is checked.",
        default=None,
        default_help="those of the system",
    )
    certificate: str | None = service_keys.key(
        service_keys.FILE,
        "The file of the certificate that is presented to the server.",
        default=None,
        default_help="none",
    )
    key: str | None = service_keys.key(
        service_keys.FILE,
        "The file of the key of that certificate.",
        default=None,
        default_help="that of `certificate`",
    )
    token_env: str | None = service_keys.key(
        service_keys.VARIABLE,
        "The environment variable that contains the bearer token of the requests.",
        default=None,
        default_help="none",
    )
    token_file: str | None = service_keys.key(
        service_keys.FILE,
        "The file that contains the bearer token; it is read for each call, so that the token can be renewed.",
        default=None,
        default_help="none",
    )
    user: str | None = service_keys.key(
        service_keys.USER, "The user of the requests, who has a password.", default=None, default_help="none"
    )
    password_env: str | None = service_keys.key(
        service_keys.VARIABLE, "The environment variable that contains the password.", default=None, default_help="none"
    )
    password_file: str | None = service_keys.key(
        service_keys.FILE,
        "The file that contains the password; it is read for each call.",
        default=None,
        default_help="none",
    )
    reply_headers: tuple[str, ...] = service_keys.key(
        service_keys.HEADER_NAMES,
        "The headers of the answer that become headers of the reply.",
        default=("content-type",),
    )
    permanent: tuple[int, ...] = service_keys.key(
        service_keys.STATUSES,
        "Further statuses after which trying again is of no use.",
        default=(),
        default_help="none",
    )
    transient: tuple[int, ...] = service_keys.key(
        service_keys.STATUSES,
        "Further statuses after which the message is tried again.",
        default=(),
        default_help="none",
    )

    def conflict(self) -> str:
        """Return which keys do not go together, and why; empty where all is well."""
        # Without arguments super() would look for the class as it was before it got its slots.
        return super(HttpDescription, self).conflict() or self._conflict_of_secrets() or self._conflict_of_statuses()

    def _conflict_of_secrets(self) -> str:
        for one, other in (("token_env", "token_file"), ("password_env", "password_file")):
            if getattr(self, one) and getattr(self, other):
                return f"has both {one} and {other}; one of them is enough"
        token, password = self.token_env or self.token_file, self.password_env or self.password_file
        if token and (self.user or password):
            return "has a token and a user or password; a request can only have one of them"
        if bool(self.user) != bool(password):
            return f"has {'a user without a password' if self.user else 'a password without a user'}"
        if self.user and ":" in self.user:
            return "must have no colon in user"
        if self.key and not self.certificate:
            return "has a key without a certificate"
        return ""

    def _conflict_of_statuses(self) -> str:
        both = sorted(set(self.permanent) & set(self.transient))
        return f"has status {both[0]} both in permanent and in transient" if both else ""


KINDS: Final[dict[str, type[Description]]] = {
    "python": PythonDescription,
    "command": CommandDescription,
    "url": HttpDescription,
}
"""The kinds of services, by the key that tells which one it is."""


def description(name: str, table: Mapping[str, Any]) -> Description:
    """Return what a table says of the service `name`; ValueError, with what is wrong, where it makes no sense.

    The text is meant to stand behind the place: it begins with a verb, or with a colon.
    """
    kind = _kind_of(table)
    declared = service_keys.keys_of(kind)
    values: dict[str, Any] = {}
    for word, written in table.items():
        if word not in declared:
            raise ValueError(_unknown(word, kind))
        form = declared[word].form
        value = form.read(written)
        if not form.allows(value):
            raise ValueError(f": {word} must be {form.allowed}, got {service_keys.shown(form, written)}")
        values[word] = tuple(value) if isinstance(value, list) else value
    found = kind(name=name, **values)
    if conflict := found.conflict():
        raise ValueError(conflict if conflict.startswith(("has ", "must ")) else f": {conflict}")
    return found


def _kind_of(table: Mapping[str, Any]) -> type[Description]:
    given = [word for word in KINDS if word in table]
    if len(given) == 1:
        return KINDS[given[0]]
    if not given:
        for word in table:
            if not any(word in service_keys.keys_of(kind) for kind in KINDS.values()):
                raise ValueError(_unknown(word, *KINDS.values()))
    raise ValueError(
        f"must have one of {', '.join(KINDS)}, and has {'both ' + ' and '.join(given) if given else 'none of them'}"
    )


def _unknown(word: str, *kinds: type[Description]) -> str:
    known = {name: True for kind in kinds for name in service_keys.keys_of(kind)}
    for teller, kind in KINDS.items():
        if kind not in kinds and word in service_keys.keys_of(kind):
            return f"has the key {word!r}, which belongs to services with {teller}"
    return f"has the unknown key {word!r}{service_keys.meant(word, known) or '; there are ' + ', '.join(known)}"
