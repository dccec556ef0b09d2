"""Services that are reached by HTTP: what is sent, and what the answers mean."""

import email.utils
import time

import pytest

from qmadmin.forwarder import Failure, Reply, StartError, Unavailable
from qmadmin.forwarder.descriptions import HttpDescription
from qmadmin.forwarder.http_service import HEADERS, HttpService
from qmcore.message import BODY_MAX, Origin, Reason
from tests.fix_service import call, failure_of, unavailability_of


@pytest.fixture
def serve(tmp_path):
    """Make a service for an address, and close it."""
    made = []

    def make(url, environ=None, **keys):
        described = HttpDescription(name="S", url=url, **keys)
        made.append(HttpService(described, str(tmp_path), environ or {}))
        return made[-1]

    yield make
    for service in made:
        service.close()


def answered(serve, server, status, headers=None, body=b"", **keys):
    """Return a service that gives an answer."""
    return serve(server((status, headers or {}, body)).url, **keys)


# ---- what is sent ----


@pytest.mark.parametrize("method", ["POST", "PUT", "GET", "PURGE"])
def test_body_of_the_message_is_sent_with_the_method_to_the_address(serve, server, method):
    web = server()
    call(serve(f"{web.url}/a/b?c=d", method=method), b"\0body\xff")
    (seen,) = web.seen
    assert (seen.method, seen.target, seen.body) == (method, "/a/b?c=d", b"\0body\xff")


def test_facts_of_the_message_are_in_the_headers(serve, server):
    web = server()
    call(serve(web.url), "text", corrid=b"a/\0 \xff", priority=7, retries=2, urcode=-3, queue="Süd")
    (seen,) = web.seen
    assert {name: seen.headers[name] for name in HEADERS} == {
        "QM-Queue": "Süd".encode().decode("latin-1"),
        "QM-Msgid": "0123456789abcdef0000000000000001",
        "QM-Corrid": "a%2F%00%20%FF",
        "QM-Priority": "7",
        "QM-Retries": "2",
        "QM-Urcode": "-3",
        "QM-Type": "STRING",
        "Idempotency-Key": "0123456789abcdef0000000000000001",
    }
    assert seen.headers["Host"] == web.url.removeprefix("http://")
    assert seen.target == "/"


def test_key_of_a_message_that_was_moved_is_the_one_that_it_had_before(serve, server):
    web = server()
    service = serve(web.url)
    call(service, origin=Origin(queue="A", msgid="before", reason=Reason.RETRIES, moved_us=0, first="at first"))
    assert web.seen[0].headers["Idempotency-Key"] == "at first"
    assert "QM-Corrid" not in web.seen[0].headers


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        ("text", {}, "text/plain; charset=utf-8"),
        (b"data", {}, "application/octet-stream"),
        (b"{}", {"CONTENT-type": "application/json"}, "application/json"),
        ({"a": 1}, {}, "application/json"),
    ],
)
def test_content_type_is_that_of_the_message_or_of_its_type(serve, server, body, headers, expected):
    web = server()
    call(serve(web.url), body, headers=headers)
    assert web.seen[0].headers.get_all("Content-Type") == [expected]


def test_headers_of_the_message_travel_but_those_that_are_about_the_connection(serve, server):
    web = server()
    away = {
        "Host": "x", "content-length": "999", "Connection": "close", "Transfer-Encoding": "chunked", "TE": "x",
        "QM-Urcode": "9", "qm-mine": "1", "authorization": "Basic x", "idempotency-KEY": "x", "Expect": "100-continue",
        "not a token": "x", "lines": "a\r\nb: c", "Upgrade": "x", "Proxy-Authorization": "x",
    }  # fmt: skip
    call(serve(web.url), b"a", headers=away | {"traceparent": "00-1-2-03", "x-name": " Zoë "})
    seen = web.seen[0].headers
    assert (seen["traceparent"], seen["x-name"].encode("latin-1").decode()) == ("00-1-2-03", "Zoë")
    assert {name: seen.get_all(name) for name in ("Content-Length", "QM-Urcode")} == {
        "Content-Length": ["1"],
        "QM-Urcode": ["0"],
    }
    gone = ["Connection", "Transfer-Encoding", "TE", "QM-Mine", "Authorization", "Expect", "lines", "b", "Upgrade"]
    assert [name for name in (*gone, "not a token", "Proxy-Authorization") if name in seen] == []
    assert seen.get_all("Idempotency-Key") == ["0123456789abcdef0000000000000001"]


def test_headers_of_the_description_win_over_those_of_the_message(serve, server):
    web = server()
    call(
        serve(web.url, headers={"X-A": "ours", "content-type": "a/b"}), headers={"x-a": "theirs", "Content-Type": "c/d"}
    )
    seen = web.seen[0].headers
    assert (seen.get_all("X-A"), seen.get_all("Content-Type")) == (["ours"], ["a/b"])


# ---- success ----


@pytest.mark.parametrize("status", [200, 201, 202, 299])
def test_status_of_success_makes_the_body_the_reply(serve, server, status):
    assert call(answered(serve, server, status, {}, b"done")) == Reply(b"done")


@pytest.mark.parametrize("status", [204, 205])
def test_answer_without_a_body_is_a_reply_of_zero_length(serve, server, status):
    assert call(answered(serve, server, status)).body == b""


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("text/plain", "naïve".encode(), "naïve"),
        ("Text/HTML; charset=UTF-8", b"a", "a"),
        ("application/json", b"{}", "{}"),
        ("text/plain", b"\xff", b"\xff"),
        ("text/plain; charset=iso-8859-1", b"a", b"a"),
        ("application/pdf", b"a", b"a"),
    ],
)
def test_reply_is_text_where_the_answer_is_said_to_be_and_is(serve, server, kind, body, expected):
    reply = call(answered(serve, server, 200, {"Content-Type": kind}, body))
    assert reply == Reply(expected, headers={"content-type": kind})


def test_answer_may_say_return_code_and_type(serve, server):
    reply = call(answered(serve, server, 200, {"QM-Urcode": "-7", "qm-type": "JSON"}, b"a"))
    assert reply == Reply(b"a", -7, "JSON")
    assert (
        str(failure_of(answered(serve, server, 200, {"QM-Urcode": "x"}))) == "its QM-Urcode is 'x', not a whole number"
    )


def test_headers_that_are_named_become_headers_of_the_reply(serve, server):
    headers = {"Content-Type": "a/b", "X-One": "1", "X-Two": "Zoë".encode().decode("latin-1"), "X-Three": "3"}
    reply = call(answered(serve, server, 200, headers, reply_headers=("x-one", "X-Two", "x-none")))
    assert reply.headers == {"x-one": "1", "X-Two": "Zoë"}


def test_answer_that_is_longer_than_a_message_is_a_failure(serve, server):
    service = answered(serve, server, 200, {}, b"x" * (BODY_MAX + 1))
    assert str(failure_of(service)) == f"its answer is longer than {BODY_MAX} bytes"


def test_large_body_goes_there_and_back(serve, server):
    body = bytes(range(256)) * 8000
    assert call(serve(server(lambda seen: (200, {}, seen.body)).url), body).body == body


# ---- failure ----


@pytest.mark.parametrize(
    ("status", "permanent"),
    [
        *[(status, True) for status in (400, 403, 404, 409, 410, 413, 422, 499)],
        *[(status, False) for status in (408, 425, 429, 500, 501, 502, 503, 504, 599)],
    ],
)
def test_status_of_a_failure_tells_whether_trying_again_is_of_use(serve, server, status, permanent):
    failed = failure_of(answered(serve, server, status, {"QM-Urcode": "3", "Content-Type": "text/plain"}, b"no\n such"))
    assert failed.permanent is permanent
    assert failed.reply == Reply("no\n such", 3, headers={"content-type": "text/plain"})
    assert str(failed).startswith(f"answered {status}")
    assert str(failed).endswith(": no such")
    assert failed.retry_after is None


@pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308])
def test_redirect_is_not_followed_and_means_that_the_address_is_wrong(serve, server, status):
    web = server((status, {"Location": "/elsewhere"}, b""))
    refused = unavailability_of(serve(web.url))
    assert str(refused).startswith(f"answered {status}")
    assert str(refused).endswith("; redirects are not followed")
    assert len(web.seen) == 1


@pytest.mark.parametrize("status", [401, 407])
def test_credentials_that_are_refused_are_no_fault_of_the_message(serve, server, status):
    refused = unavailability_of(answered(serve, server, status, {"Retry-After": "60"}))
    assert str(refused).endswith("; the credentials are refused")
    assert refused.retry_after == 60


def test_further_statuses_may_be_described_as_permanent_or_transient(serve, server):
    keys = {"permanent": (500, 302), "transient": (404, 401)}
    found = {status: failure_of(answered(serve, server, status, **keys)).permanent for status in (500, 302, 404, 401)}
    assert found == {500: True, 302: True, 404: False, 401: False}


@pytest.mark.parametrize(("status", "said"), [(500, "true"), (404, "False"), (401, "false"), (302, "true")])
def test_what_the_answer_says_wins_over_its_status(serve, server, status, said):
    failed = failure_of(answered(serve, server, status, {"QM-Permanent": said}))
    assert failed.permanent is (said == "true")


@pytest.mark.parametrize(
    ("said", "seconds"), [("120", 120), (" 0 ", 0), ("9" * 400, 2**31 - 1), ("soon", None), ("-1", None)]
)
def test_answer_may_say_when_to_try_again(serve, server, said, seconds):
    assert failure_of(answered(serve, server, 503, {"Retry-After": said})).retry_after == seconds


def test_time_to_try_again_may_be_a_date(serve, server):
    def after(seconds):
        date = email.utils.formatdate(time.time() + seconds, usegmt=True)
        return failure_of(answered(serve, server, 503, {"Retry-After": date})).retry_after

    assert 900 < after(1000) <= 1000
    assert after(-1000) == 0


def test_long_body_of_a_failure_is_kept_and_its_start_is_the_reason(serve, server):
    failed = failure_of(answered(serve, server, 500, {}, b"x" * 100_000))
    assert len(failed.reply.body) == 100_000
    assert (len(str(failed)), str(failed)[-5:]) == (1000, "xx...")


# ---- credentials ----


def test_token_of_the_environment_or_of_a_file_is_sent(serve, server, tmp_path):
    web = server()
    call(serve(web.url, {"TOKEN": "abc"}, token_env="TOKEN"))
    (tmp_path / "token").write_text("def\n")
    service = serve(web.url, token_file="token")
    call(service)
    (tmp_path / "token").write_text("ghi\n")
    call(service)
    assert [seen.headers["Authorization"] for seen in web.seen] == ["Bearer abc", "Bearer def", "Bearer ghi"]


def test_user_and_password_are_sent(serve, server, tmp_path):
    web = server()
    call(serve(web.url, {"PASSWORD": "pä:ß"}, user="me", password_env="PASSWORD"))
    (tmp_path / "password").write_text("secret\n")
    call(serve(web.url, user="me", password_file="password"))
    assert [seen.headers["Authorization"] for seen in web.seen] == ["Basic bWU6cMOkOsOf", "Basic bWU6c2VjcmV0"]


def test_secret_that_is_not_there_is_told_at_the_start_and_later_is_no_try(serve, server, tmp_path):
    web = server()
    for keys, told in (
        ({"token_env": "TOKEN"}, "service 'S': the environment variable TOKEN is not set"),
        ({"token_file": "token"}, "service 'S': 'token' cannot be read: No such file or directory"),
    ):
        with pytest.raises(StartError) as refused:
            serve(web.url, **keys)
        assert str(refused.value) == told
    (tmp_path / "token").write_text("abc")
    service = serve(web.url, token_file="token")
    for content in ("", "a\nb"):
        (tmp_path / "token").write_text(content)
        assert str(unavailability_of(service)) == "'token' must have one line, with the token or the password"
    (tmp_path / "token").unlink()
    assert str(unavailability_of(service)) == "'token' cannot be read: No such file or directory"
    assert web.seen == []


@pytest.mark.parametrize("status", [401, 404, 500])
def test_secret_that_the_server_repeats_is_not_in_the_reason(serve, server, status):
    web = server(lambda seen: (status, {}, f"no: {seen.headers['Authorization']} hunter2".encode()))
    for keys in ({"token_env": "WORD"}, {"user": "me", "password_env": "WORD"}):
        service = serve(web.url, {"WORD": "hunter2"}, **keys)
        try:
            call(service)
        except (Failure, Unavailable) as error:
            told = str(error)
        assert told.startswith(f"answered {status}")
        assert "***" in told
        assert not [word for word in ("hunter2", "bWU6aHVudGVyMg==") if word in told]


def test_service_of_the_file_finds_what_it_names(services, server):
    web = server((200, {}, b"done"))
    services.write("token", "abc")
    service = services.make(f'url = "{web.url}/x"\nmethod = "PUT"\ntoken_file = "token"\nheaders = {{X-A = "b"}}')
    assert call(service).body == b"done"
    (seen,) = web.seen
    assert (seen.method, seen.headers["Authorization"], seen.headers["X-A"]) == ("PUT", "Bearer abc", "b")


def test_failure_of_one_call_is_none_of_the_next(serve, server):
    answers = iter([(500, {}, b"no"), (200, {}, b"yes")])
    service = serve(server(lambda seen: next(answers)).url)
    with pytest.raises(Failure):
        call(service)
    assert call(service).body == b"yes"
