"""The description of a service in the services file: a dataclass for each kind, whose fields are the keys."""

from __future__ import annotations

import importlib
import operator
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from qmadmin.consumers.handling import Form, Handling, keys_of, one_of, optional, required, whole_number
from qmadmin.forwarder import StartError
from qmadmin.settings import meant, shown
from qmcore.errors import InvalidArgumentError
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmcore.message import Message


TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The characters of the name of an HTTP header."""


# ---- forms -----------------------------------------------------------------------------------------------------------


def words(example: str) -> Form:
    """Return the form of a list of texts, the first of which is not empty."""
    return Form(
        f"a list of text such as {example}",
        lambda value: isinstance(value, list) and bool(value) and bool(value[0]) and all(map(is_text, value)),
    )


def table(example: str, is_name: Callable[[str], bool], *, is_value: Callable[[object], bool] | None = None) -> Form:
    """Return the form of a table of names and texts, which may hold a secret."""
    check = is_value or is_text
    return Form(
        f"a table of text such as {example}",
        lambda value: isinstance(value, dict) and all(is_name(name) and check(text) for name, text in value.items()),
        secret=True,
    )


def is_text(value: object) -> bool:
    """Return whether a value is a text that can be passed to a program."""
    return isinstance(value, str) and "\0" not in value


def is_line(value: object) -> bool:
    """Return whether a value is a text of one line."""
    return isinstance(value, str) and all(ord(char) >= 32 and ord(char) != 127 for char in value)


def is_token(value: object) -> bool:
    """Return whether a value can be the name of an HTTP header."""
    return isinstance(value, str) and TOKEN.fullmatch(value) is not None


def _is_function(value: object) -> bool:
    if not isinstance(value, str):
        return False
    module, colon, path = value.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *path.split(".")))


def _is_statuses(value: object) -> bool:
    return isinstance(value, list) and all(whole_number(300, 599).allows(status) for status in value)


def _name(what: str) -> Form:
    return Form(f"the name of {what}", lambda value: is_line(value) and bool(value))


FILE: Final = _name("a file")
DIRECTORY: Final = _name("a directory")
VARIABLE: Final = _name("an environment variable")
USER: Final = _name("a user")
FUNCTION: Final = Form("of the form 'module:function'", _is_function)
STATUSES: Final = Form("a list of statuses from 300 to 599", _is_statuses)
HEADER_NAMES: Final = Form(
    'a list of names of headers such as ["content-type"]',
    lambda value: isinstance(value, list) and all(map(is_token, value)),
)
HTTP_METHOD: Final = Form("the name of an HTTP method such as POST", is_token)
URL: Final = Form(
    "an address that begins with http:// or https://, without a user or password",
    lambda value: is_line(value) and _is_url(value),
    secret=True,
)


def _is_url(text: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return usable and parts.username is None and parts.password is None and " " not in text and text.isascii()


# ---- kinds of services -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Description(Handling):
    """A service of any kind: `name` is that of its queue; the other fields are keys."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonDescription(Description):
    """A function in Python."""

    python: str = required(
        FUNCTION,
        "The function, as `module:name`. The module is searched for in the directory of the services file first.",
    )
    run: str = optional(
        one_of("thread", "process"),
        "Where the function runs: in a thread of the daemon, or in a worker process; there are as many worker processes"
        " as calls at the same time.",
        "thread",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDescription(Description):
    """A command."""

    command: tuple[str, ...] = required(
        words('["tr", "a-z", "A-Z"]'),
        "The program and its arguments; no shell interprets them. A relative path with a slash is relative to the"
        " directory of the services file; a name without a slash is searched for in `PATH`.",
    )
    environment: Mapping[str, str] | None = optional(
        table('{NAME = "value"}', lambda name: bool(name) and "=" not in name and is_text(name)),
        "Variables of its environment, in addition to those of the daemon.",
    )
    directory: str | None = optional(
        DIRECTORY,
        "The directory in which it runs; a relative path is relative to that of the services file.",
        default_help="the daemon's own",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpDescription(Description):
    """A service that is reached by HTTP."""

    url: str = required(URL, "The address, which begins with http:// or https://. Proxies are not used.")
    method: str = optional(HTTP_METHOD, "The method of the requests.", "POST")
    headers: Mapping[str, str] | None = optional(
        table('{Accept = "text/plain"}', is_token, is_value=is_line),
        "Headers of each request. They override the headers of the message.",
    )
    ca: str | None = optional(
        FILE,
        "The file of the certificates with which the certificate of the server is checked.",
        default_help="those of the system",
    )
    certificate: str | None = optional(FILE, "The file of the certificate that is presented to the server.")
    key: str | None = optional(FILE, "The file of the key of that certificate.", default_help="that of `certificate`")
    token_env: str | None = optional(
        VARIABLE, "The environment variable that contains the bearer token of the requests."
    )
    token_file: str | None = optional(
        FILE, "The file that contains the bearer token; it is read for each call, so that the token can be renewed."
    )
    user: str | None = optional(USER, "The user of the requests, who has a password.")
    password_env: str | None = optional(VARIABLE, "The environment variable that contains the password.")
    password_file: str | None = optional(FILE, "The file that contains the password; it is read for each call.")
    reply_headers: tuple[str, ...] = optional(
        HEADER_NAMES, "The headers of the answer that become headers of the reply.", ("content-type",)
    )
    permanent: tuple[int, ...] = optional(STATUSES, "Further statuses after which trying again is of no use.", ())
    transient: tuple[int, ...] = optional(STATUSES, "Further statuses after which the message is tried again.", ())

    def conflict(self) -> str:
        """Return which keys conflict, and why; empty if none do."""
        # Without arguments super() would look for the class as it was before it got its slots.
        # With slots the class is made again, and what stands here without a name would be the first one.
        own = super(HttpDescription, self).conflict()  # noqa: UP008 - see above
        return own or self._conflict_of_secrets() or self._conflict_of_statuses()

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
"""The kinds of services, by the key that identifies each."""


def description(name: str, table: Mapping[str, Any]) -> Description:
    """Return the description of the service `name` in a table; raise ValueError, with what is wrong, if it is invalid.

    The text follows the name of the place: it begins with a verb, or with a colon.
    """
    kind = _kind_of(table)
    declared = keys_of(kind)
    values: dict[str, Any] = {}
    for word, written in table.items():
        if word not in declared:
            raise ValueError(_unknown(word, kind))
        form = declared[word].form
        value = form.read(written)
        if not form.allows(value):
            raise ValueError(
                f": {word} must be {form.allowed}, got {_hidden(written) if form.secret else shown(written)}"
            )
        values[word] = tuple(value) if isinstance(value, list) else value
    found = kind(name=name, **values)
    if conflict := found.conflict():
        raise ValueError(conflict if conflict.startswith(("has ", "must ")) else f": {conflict}")
    return found


def _hidden(value: object) -> str:
    return "another one" if isinstance(value, dict) else f"a {type(value).__name__}"


def _kind_of(table: Mapping[str, Any]) -> type[Description]:
    given = [word for word in KINDS if word in table]
    if len(given) == 1:
        return KINDS[given[0]]
    if not given:
        for word in table:
            if not any(word in keys_of(kind) for kind in KINDS.values()):
                raise ValueError(_unknown(word, *KINDS.values()))
    raise ValueError(
        f"must have one of {', '.join(KINDS)}, and has {'both ' + ' and '.join(given) if given else 'none of them'}"
    )


def _unknown(word: str, *kinds: type[Description]) -> str:
    known = {name: True for kind in kinds for name in keys_of(kind)}
    for teller, kind in KINDS.items():
        if kind not in kinds and word in keys_of(kind):
            return f"has the key {word!r}, which belongs to services with {teller}"
    return f"has the unknown key {word!r}{meant(word, known) or '; there are ' + ', '.join(known)}"


def find_function(target: str, name: str) -> Callable[[Message], object]:
    """Import the function that `module:function` names, for service `name`; raise StartError if there is none."""
    from qmadmin.consumers.decoding import decoded
    from qmadmin.consumers.function_handler import described

    module_name, _, path = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except KeyboardInterrupt:
        # At the start it is Ctrl-C.
        raise
    except BaseException as error:
        raise StartError(f"service {name!r}: module {module_name!r} cannot be imported: {described(error)}") from error
    try:
        function: Any = operator.attrgetter(path)(module)
    except AttributeError:
        text = f"service {name!r}: module {module_name!r} has no function {path!r}{meant(path, tuple(dir(module)))}"
        raise StartError(text) from None
    if not callable(function):
        raise StartError(f"service {name!r}: {target!r} is a {type(function).__name__}, which cannot be called")
    try:
        return decoded(function)
    except InvalidArgumentError as error:
        raise StartError(f"service {name!r}: {error.message}", error.hint) from error
