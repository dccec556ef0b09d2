"""Where a device on PostgreSQL is: the URL that names it, what the driver needs of it, and what people may see."""

from __future__ import annotations

import dataclasses
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from qmcore import names
from qmcore.errors import BadResourceError, InvalidArgumentError, QueueError
from qmcore.values import dataclass

DEFAULT_SCHEMA: Final = "qmadmin"
DEFAULT_PORT: Final = "5432"
CONNECT_SECONDS: Final = 10
"""How long a server may take to answer, where neither the URL nor a service says."""

_KEEPALIVES: Final = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
}
"""By which the kernel of this machine finds out within half a minute that the other one is gone."""

_SCHEMA_MAX = 40
"""Names that are derived from it have to fit into the 63 bytes of PostgreSQL."""
_APPLICATION_NAME_MAX = 63
_FAMILY = ("postgresql", "postgres")
_DRIVERS = ("", "psycopg")
_NO_FILE: Final = "/dev/null/none"
"""A password file that cannot exist: libpq does not complain about a missing one."""

_FORM = "postgresql://user@host:port/database?schema=name"
_PLACE = ("service", "host", "hostaddr", "port", "dbname")
"""The parameters of libpq that say where the database is."""
_FROM_ENVIRONMENT = {"host": "PGHOST", "hostaddr": "PGHOSTADDR", "port": "PGPORT", "dbname": "PGDATABASE"}


@dataclass(frozen=True, slots=True)
class Address:
    """A schema of a database. Two are equal if they name the same schema of the same database in the same way.

    `schema` is the name of the schema; `shown` is the URL without anything that not everybody may see: no user, no
    password, no parameters but those that say where the database is. It can be used as a URL where the rest comes from
    the environment, a password file or a service.
    """

    schema: str
    shown: str
    _parameters: Mapping[str, str] = dataclasses.field(repr=False, compare=False)

    @classmethod
    def parse(cls, url: str, environ: Mapping[str, str] | None = None) -> Address:
        """Return the address that a URL names; what it leaves open is taken from the environment, as by libpq.

        `schema` among its parameters is the schema, all others are libpq's. Raises InvalidArgumentError for what is
        malformed, and BadResourceError for the URL of another driver. No message repeats what may be a password.
        """
        parameters = _parameters(url)
        schema = _checked_schema(parameters.pop("schema", DEFAULT_SCHEMA))
        place = _place(parameters, os.environ if environ is None else environ)
        return cls(schema, names.path(_shown(place, schema)), parameters | place)

    @property
    def conninfo(self) -> str:
        """The connection string for the driver. It may hold a password and must not be shown.

        Raises InvalidArgumentError for a parameter that libpq does not know, and BadResourceError where the driver is
        not installed.
        """
        driver = require_driver()
        parameters = {**self._defaults(), **self._parameters, **self._without_file()}
        try:
            return str(driver.conninfo.make_conninfo(**parameters))
        except driver.ProgrammingError:
            raise self._unknown_parameter(driver) from None

    @property
    def refused_file(self) -> str:
        """Why the password file is ignored; empty where it is not, or no password is looked for in it."""
        return "" if "password" in self._parameters else _password_file_refused(self._parameters)

    def _without_file(self) -> dict[str, str]:
        return {"passfile": _NO_FILE} if self.refused_file else {}

    def sibling(self, schema: str) -> Address:
        """Return the address of another schema of the same database; InvalidArgumentError for an invalid name."""
        checked = _checked_schema(schema)
        place = {name: self._parameters[name] for name in _PLACE if name in self._parameters}
        return Address(checked, _shown(place, checked), self._parameters)

    def is_beside(self, other: Address) -> bool:
        """Return whether another address is in the same database, as far as the names show."""
        return self.sibling(other.schema) == other

    def _defaults(self) -> dict[str, str]:
        """Return what libpq is told beyond the URL; what a service or the environment says about it comes first."""
        # The name of the machine, because behind a proxy the server does not see where its clients are.
        name = f"qmadmin {os.getpid()} {os.uname().nodename}"[:_APPLICATION_NAME_MAX]
        defaults = {"fallback_application_name": name}
        if "service" not in self._parameters:
            defaults |= _KEEPALIVES
        if "service" not in self._parameters and not os.environ.get("PGCONNECT_TIMEOUT"):
            defaults["connect_timeout"] = str(CONNECT_SECONDS)
        return {key: value for key, value in defaults.items() if key not in self._parameters}

    def _unknown_parameter(self, driver: ModuleType) -> QueueError:
        known = {option.keyword.decode() for option in driver.pq.Conninfo.get_defaults()}
        unknown = sorted(name for name in self._parameters if name not in known)
        named = f": {', '.join(map(repr, unknown))}" if unknown else ""
        return InvalidArgumentError(
            f"the URL of {self.shown} has parameters that libpq does not know{named}",
            hint="schema is the parameter of qmadmin; all others are those of libpq, such as sslmode or passfile.",
            parameters=unknown,
        )


def is_postgres(url: str) -> bool:
    """Return whether a text is a URL of PostgreSQL, of any driver."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme.lower().partition("+")[0] in _FAMILY


def require_driver() -> ModuleType:
    """Return the driver; BadResourceError where it is not installed."""
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError as error:
        reason = "psycopg is not installed" if error.name == "psycopg" else "psycopg finds no libpq"
        raise BadResourceError(
            f"devices on PostgreSQL need a driver, and {reason}",
            hint="Install it with: pip install 'psycopg[binary]'.",
        ) from None
    return psycopg


# ---- what is in a URL -----------------------------------------------------------------------------------------------


def _parameters(url: str) -> dict[str, str]:
    """Return what a URL says, by the names of libpq."""
    _refuse_other_drivers(url)
    _, _, rest = url.partition("://")
    before_query, _, query = rest.partition("?")
    authority, slash, path = before_query.partition("/")
    if "@" in path or "@" in query:
        raise _malformed("an @ after the host", "Write the signs / ? @ of a user or a password as %2F %3F %40.")
    found: dict[str, str] = {}
    user_part, at, hosts = authority.rpartition("@")
    if at:
        _add_user(found, user_part)
    _add_hosts(found, hosts)
    if slash and path:
        _add(found, "dbname", _decoded(path, "database"))
    for item in filter(None, query.split("&")):
        _add_item(found, item)
    return found


def _refuse_other_drivers(url: str) -> None:
    scheme, _, driver = url.partition("://")[0].lower().partition("+")
    if not is_postgres(url):
        raise InvalidArgumentError("a URL of PostgreSQL begins with postgresql://", hint=f"Its form is {_FORM}.")
    if driver not in _DRIVERS:
        raise BadResourceError(
            f"the driver {driver!r} of the URL is not supported, only psycopg is",
            hint=f"Begin the URL with {scheme}:// or {scheme}+psycopg://.",
            driver=driver,
        )


def _add_user(found: dict[str, str], user_part: str) -> None:
    user, colon, password = user_part.partition(":")
    if "@" in user_part:
        raise _malformed("more than one @ before the host", "Write an @ of a user or a password as %40.")
    if user:
        _add(found, "user", _decoded(user, "user"))
    if colon and password:
        _add(found, "password", _decoded(password, "password"))


def _add_hosts(found: dict[str, str], hosts: str) -> None:
    """Note the hosts, of which there may be several with commas between them, and their ports."""
    if not hosts:
        return
    pairs = [_host_and_port(host) for host in hosts.split(",")]
    if any(host for host, _ in pairs):
        _add(found, "host", ",".join(host for host, _ in pairs))
    if any(port for _, port in pairs):
        _add(found, "port", ",".join(port for _, port in pairs))


def _host_and_port(text: str) -> tuple[str, str]:
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.%\w]*\]|[^\[\]:]*)(?::([0-9]*))?", text)
    if match is None:
        raise _malformed("no host with a port", "The port is a number; an IPv6 address stands in [ ].")
    host, port = match[1], match[2] or ""
    if port and not 1 <= int(port) <= 65535:
        raise _malformed("a port that is not from 1 to 65535")
    return _decoded(host.strip("[]"), "host"), port


def _add_item(found: dict[str, str], item: str) -> None:
    name, equals, value = item.partition("=")
    if not re.fullmatch(r"\w+", name) or not equals:
        raise _malformed("parameters that are not name=value with & between them")
    if (name, value) == ("ssl", "true"):
        name, value = "sslmode", "require"
    _add(found, name, _decoded(value, name))


def _add(found: dict[str, str], name: str, value: str) -> None:
    if name in found:
        raise _malformed(f"{name} more than once")
    found[name] = value


def _decoded(text: str, what: str) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise _malformed(f"a % that no two hexadecimal digits follow in its {what}", "Write a % as %25.")
    try:
        plain = unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise _malformed(f"a {what} that is not UTF-8") from None
    if any(ord(char) < 32 or ord(char) == 127 for char in plain):
        raise _malformed(f"a control character in its {what}")
    return plain


def _malformed(what: str, hint: str = "") -> QueueError:
    return InvalidArgumentError(f"the URL of the PostgreSQL device has {what}", hint=hint or f"Its form is {_FORM}.")


def _checked_schema(name: str) -> str:
    """Return a name for a schema, or refuse it."""
    if not re.fullmatch(r"[A-Za-z0-9_]+", name) or len(name) > _SCHEMA_MAX:
        problem = f"must be 1 to {_SCHEMA_MAX} letters, digits and underscores"
    elif name.lower().startswith("pg_") or name.lower() == "information_schema":
        problem = "is one of PostgreSQL's own"
    elif name.endswith("_memory"):
        problem = "ends in _memory, which is kept for the non-persistent messages"
    else:
        return name
    shown = name if len(name) <= 60 else name[:57] + "..."
    raise InvalidArgumentError(f"the schema {shown!r} {problem}", hint="Name another schema.", schema=name)


# ---- where it is ----------------------------------------------------------------------------------------------------


def _place(parameters: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return where the database is: what the URL says, else a service, else the environment."""
    place = {name: parameters[name] for name in _PLACE if parameters.get(name)}
    if "service" not in place and not place.keys() & {"host", "hostaddr"} and environ.get("PGSERVICE"):
        place["service"] = environ["PGSERVICE"]
    if "service" in place:
        # The service comes before the environment; what the URL says comes before both.
        return place
    is_named = bool(place.keys() & {"host", "hostaddr"})
    for name in ("port", "dbname") if is_named else _FROM_ENVIRONMENT:
        if name not in place and environ.get(_FROM_ENVIRONMENT[name]):
            place[name] = environ[_FROM_ENVIRONMENT[name]]
    return place


def _shown(place: Mapping[str, str], schema: str) -> str:
    """Return the URL that says where something is, and no more."""
    hosts = (place.get("host") or place.get("hostaddr") or "").split(",")
    ports = place.get("port", "").split(",")
    asked: dict[str, str] = {}
    if hosts == [""]:
        authority = ""
        if "port" in place:
            asked["port"] = place["port"]
    elif any(host.startswith(("/", "@")) for host in hosts) or "service" in place:
        authority = ""
        asked = {name: place[name] for name in ("host", "port") if name in place}
        if "service" not in place:
            asked.setdefault("port", DEFAULT_PORT)
    else:
        authority = ",".join(_shown_host(host, ports, number) for number, host in enumerate(hosts))
    if "service" in place:
        asked["service"] = place["service"]
    asked["schema"] = schema
    query = "&".join(f"{name}={quote(value, safe='/:,')}" for name, value in asked.items())
    return f"postgresql://{authority}/{quote(place.get('dbname', ''), safe='')}?{query}"


def _shown_host(host: str, ports: list[str], number: int) -> str:
    port = ports[number] if len(ports) > 1 and number < len(ports) else ports[0]
    written = f"[{host}]" if ":" in host else quote(host.lower(), safe="")
    return f"{written}:{port or DEFAULT_PORT}"


def _password_file_refused(parameters: Mapping[str, str]) -> str:
    """Return why libpq ignores the password file, as a sentence without its end; empty where it does not.

    Libpq itself writes to the standard error output where it ignores it.
    """
    path = parameters.get("passfile") or os.environ.get("PGPASSFILE") or str(Path("~/.pgpass").expanduser())
    try:
        mode = Path(path).stat().st_mode
    except (OSError, RuntimeError, ValueError):
        return ""
    if not stat.S_ISREG(mode):
        return f"password file {path!r} is ignored: it is not a file"
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return f"password file {path!r} is ignored: its group or others may use it; give it mode 0600"
    return ""
