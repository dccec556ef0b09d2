"""A service over HTTP: the body of the message is that of the request, the reply that of the answer."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import quote, urlsplit

from qmadmin import tracing
from qmadmin.consumers import Call, EncodedBody, Failure, Handler, Reply, Unavailable, failure_with
from qmadmin.forwarder import StartError
from qmadmin.forwarder.descriptions import HttpDescription, is_line, is_token
from qmadmin.forwarder.http_connections import Answer, Connections, Request
from qmadmin.settings import SECONDS_MAX
from qmadmin.version import __version__
from qmcore import names
from qmcore.message import BODY_MAX, Message
from qmcore.redacted import HIDDEN


class HttpService(Handler):
    """Sends an HTTP request for each message. A status from 200 to 299 is success.

    `directory` is where the files of the description are, `environ` where its variables are. Raises StartError if one
    of them does not exist or cannot be used.
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
        """Process a request."""
        secret, authorization = self._authorization()
        headers = request_headers(call.request, dict(self._described.headers or {}) | authorization)
        request = Request(self._described.method, self._target, headers, call.request.body or b"")
        try:
            return self._result(self._connections.exchange(call, request))
        except (Failure, Unavailable) as error:
            _hide(error, [secret, *authorization.values()])

    def stop_calls(self) -> None:
        """Cut the connections on which calls wait."""
        self._connections.stop()

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _result(self, answer: Answer) -> Reply:
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
    """Keep the library from asking for a password at the terminal."""
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


HEADERS: Final = {
    "QM-Queue": "the queue",
    "QM-Msgid": "the identifier of the message",
    "QM-Corrid": "its correlation identifier, percent-encoded, if it has one",
    "QM-Priority": "its priority",
    "QM-Retries": "how often it was rolled back before",
    "QM-Urcode": "the user return code that came with it",
    "QM-Type": "`STRING` for text, `CARRAY` for bytes, `JSON`",
    "Idempotency-Key": "the identifier that the message got when it was enqueued, the same at each try",
}
"""The headers of a request, and their meanings."""

ANSWERS: Final = {
    "QM-Urcode": "the user return code of the reply, a whole number",
    "QM-Type": "the type of the reply",
    "QM-Permanent": "`true` or `false`: whether trying again is of no use, regardless of the status",
    "Retry-After": "seconds or a date: when the message is tried again, or a paused queue is served again",
}
"""The headers of an answer, and their meanings."""

_TYPES: Final = {"STRING": "text/plain; charset=utf-8", "JSON": "application/json"}
"""The content types of messages, by their types."""
_BYTES: Final = "application/octet-stream"

_OURS_ALONE: Final = frozenset(
    (
        *("accept-encoding", "authorization", "connection", "content-length", "content-type", "expect", "host"),
        *("idempotency-key", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te"),
        *("trailer", "transfer-encoding", "upgrade"),
    )
)
"""Headers of a message that are not sent: they concern the connection, or have another meaning."""

_REFUSED: Final = (401, 407)
_TRANSIENT: Final = (408, 425, 429)
_TEXTS: Final = ("application/json",)


def request_headers(request: Message, fixed: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request: those of the message, overridden by the `fixed` ones and by our own."""
    each = (
        {"User-Agent": f"qmadmin/{__version__}"},
        {name: value for name, value in request.headers.items() if _travels(name, value)},
        # The call is a step of the trace of the message.
        tracing.headers(),
        {"Content-Type": _content_type(request)},
        fixed,
        _facts(request),
    )
    last = {name.lower(): (name, value) for headers in each for name, value in headers.items()}
    # The library encodes each character as one byte.
    return {name: value.strip().encode().decode("latin-1") for name, value in last.values()}


def reply_of(answer: Answer, kept: Sequence[str]) -> Reply:
    """Return the reply in a successful answer; `kept` are the headers that it keeps."""
    if answer.is_cut:
        raise Failure(f"its answer is longer than {BODY_MAX} bytes")
    return _reply(answer, kept)


def failure_of(
    answer: Answer, kept: Sequence[str], permanent: Sequence[int], transient: Sequence[int]
) -> Failure | Unavailable:
    """Return the failure of an unsuccessful answer; `permanent` and `transient` are further such statuses."""
    status = answer.status
    retry_after = _seconds_until(answer.headers.get("Retry-After"))
    told = f"answered {status} {answer.reason}".rstrip()
    said = " ".join(answer.body[:4000].decode(errors="replace").split())
    reason = names.storable(f"{told}: {said}" if said else told)
    is_permanent = _permanence(answer, permanent, transient)
    if is_permanent is None:
        if status in _REFUSED:
            return Unavailable(f"{reason}; the credentials are refused", retry_after=retry_after)
        return Unavailable(f"{told}; redirects are not followed", retry_after=retry_after)
    return failure_with(reason, _reply(answer, kept), permanent=is_permanent, retry_after=retry_after)


def _travels(name: str, value: str) -> bool:
    lower = name.lower()
    return is_token(name) and is_line(value) and lower not in _OURS_ALONE and not lower.startswith("qm-")


def _content_type(request: Message) -> str:
    for name, value in request.headers.items():
        if name.lower() == "content-type" and is_line(value):
            return value
    return _TYPES.get(request.type, _BYTES)


def _facts(request: Message) -> dict[str, str]:
    facts = {
        "QM-Queue": request.queue,
        "QM-Msgid": request.msgid,
        "QM-Priority": str(request.priority),
        "QM-Retries": str(request.retries),
        "QM-Urcode": str(request.urcode),
        "QM-Type": request.type,
        "Idempotency-Key": request.first_msgid,
    }
    return facts if request.corrid is None else facts | {"QM-Corrid": quote(request.corrid, safe="")}


def _reply(answer: Answer, kept: Sequence[str]) -> Reply:
    headers = {name: _text(answer.headers[name]) for name in kept if name in answer.headers}
    kind = answer.headers.get("QM-Type")
    return Reply(_body(answer), _urcode(answer.headers.get("QM-Urcode")), kind and _text(kind), headers or None)


def _body(answer: Answer) -> EncodedBody:
    """Return the body: a str if its content type is text or JSON and it is valid UTF-8."""
    kind, _, parameters = answer.headers.get("Content-Type", "").lower().partition(";")
    kind = kind.strip()
    charset = parameters.partition("charset=")[2].strip(' "').partition(";")[0]
    if (kind.startswith("text/") or kind in _TEXTS) and charset in ("", "utf-8", "utf8", "us-ascii"):
        with contextlib.suppress(UnicodeDecodeError):
            return answer.body.decode()
    return answer.body


def _urcode(text: str | None) -> int:
    try:
        return int(text or "0")
    except ValueError:
        raise Failure(f"its QM-Urcode is {text!r}, not a whole number") from None


def _text(value: str) -> str:
    """Return a header as a str, decoded as UTF-8 if it is valid."""
    with contextlib.suppress(UnicodeError):
        value = value.encode("latin-1").decode()
    return names.storable(value)


def _permanence(answer: Answer, permanent: Sequence[int], transient: Sequence[int]) -> bool | None:
    """Return whether trying again is of no use; None if no message can be processed."""
    said, status = answer.headers.get("QM-Permanent", "").strip().lower(), answer.status
    if said in ("true", "false"):
        return said == "true"
    if status in permanent or status in transient:
        return status in permanent
    if status in _REFUSED or 300 <= status < 400:
        return None
    return 400 <= status < 500 and status not in _TRANSIENT


def _seconds_until(text: str | None) -> float | None:
    """Return what Retry-After says, in seconds from now."""
    if not text:
        return None
    if text.strip().isascii() and text.strip().isdigit():
        return float(min(int(text[:20]), SECONDS_MAX))
    try:
        moment = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return min(max(moment - time.time(), 0.0), SECONDS_MAX)
