"""A service that is reached by HTTP: the request is the body of a request, the reply that of the answer."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from qmadmin.consumers.handler import Call, Failure, Handler, Reply, Unavailable
from qmadmin.forwarder.errors import StartError
from qmadmin.forwarder.http_connections import Answer, Connections, Request
from qmadmin.forwarder.http_messages import failure_of, reply_of, request_headers
from qmadmin.forwarder.service_keys import is_line
from qmcore.redacted import HIDDEN

if TYPE_CHECKING:
    from qmadmin.forwarder.descriptions import HttpDescription


class HttpService(Handler):
    """Sends an HTTP request for each message. A status from 200 to 299 is success.

    `directory` is where the files of the description are looked for, `environ` where its variables are. Raises
    StartError where one of them is not there, or cannot be used.
    """

    def __init__(
        self, described: HttpDescription, directory: str, environ: Mapping[str, str], workers: int = 1
    ) -> None:
        self._described = described
        self._directory = directory
        self._variables = {
            name: _variable(described, name, environ)
            for name in (described.token_env, described.password_env)
            if name is not None
        }
        self._check_files()
        url = urlsplit(described.url)
        self._target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        tls = self._tls() if url.scheme == "https" else None
        self._connections = Connections(url, tls, workers)

    def call(self, call: Call) -> Reply:
        """Work on a request."""
        secret, authorization = self._authorization()
        headers = request_headers(call.request, dict(self._described.headers or {}) | authorization)
        request = Request(self._described.method, self._target, headers, call.request.body or b"")
        try:
            return self._judged(self._connections.exchange(call, request))
        except (Failure, Unavailable) as error:
            _hide(error, [secret, *authorization.values()])

    def stop_calls(self) -> None:
        """Cut the connections on which calls wait."""
        self._connections.stop()

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _judged(self, answer: Answer) -> Reply:
        described = self._described
        if 200 <= answer.status < 300:
            return reply_of(answer, described.reply_headers)
        raise failure_of(answer, described.reply_headers, described.permanent, described.transient)

    def _authorization(self) -> tuple[str, dict[str, str]]:
        """Return the secret, and the header that it is sent in."""
        described = self._described
        if described.user is not None:
            password = self._secret(described.password_env, described.password_file)
            both = base64.b64encode(f"{described.user}:{password}".encode()).decode()
            return password, {"Authorization": f"Basic {both}"}
        if described.token_env or described.token_file:
            token = self._secret(described.token_env, described.token_file)
            return token, {"Authorization": f"Bearer {token}"}
        return "", {}

    def _secret(self, variable: str | None, file: str | None) -> str:
        if variable is not None:
            return self._variables[variable]
        try:
            found = Path(self._directory, file or "").read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            raise Unavailable(f"{file!r} cannot be read: {_why(error)}") from None
        if not found or not is_line(found):
            raise Unavailable(f"{file!r} must have one line, with the token or the password")
        return found

    def _check_files(self) -> None:
        try:
            self._authorization()
        except Unavailable as error:
            raise StartError(f"service {self._described.name!r}: {error}") from None

    def _tls(self) -> ssl.SSLContext:
        described = self._described
        try:
            context = ssl.create_default_context(cafile=self._path(described.ca))
        except OSError as error:
            raise StartError(f"service {described.name!r}: ca {described.ca!r} cannot be used: {_why(error)}") from None
        certificate = self._path(described.certificate)
        if certificate is not None:
            try:
                context.load_cert_chain(certificate, self._path(described.key), password=_refuse_to_ask)
            except OSError as error:
                raise StartError(
                    f"service {described.name!r}: certificate {described.certificate!r} cannot be used: {_why(error)}"
                ) from None
        return context

    def _path(self, file: str | None) -> str | None:
        return None if file is None else str(Path(self._directory, file))


def _variable(described: HttpDescription, name: str, environ: Mapping[str, str]) -> str:
    value = environ.get(name, "")
    if not value or not is_line(value):
        what = "is not set" if not value else "has more than one line"
        raise StartError(f"service {described.name!r}: the environment variable {name} {what}")
    return value


def _refuse_to_ask() -> str:
    """Keep the library from asking at the terminal, of which a daemon has none."""
    raise PermissionError(0, "its key needs a password")


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _hide(error: Failure | Unavailable, secrets: list[str]) -> NoReturn:
    """Raise an error without the secrets, which a server may have repeated."""
    text = str(error)
    for secret in secrets:
        bare = secret.partition(" ")[2] or secret
        if bare:
            text = text.replace(bare, HIDDEN)
    error.args = (text,)
    raise error
