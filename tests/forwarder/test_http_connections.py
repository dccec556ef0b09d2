"""Connections of services that are reached by HTTP: kept, lost, slow, refused, and secured."""

import socket
import ssl
import threading

import pytest
import trustme

from qmadmin.forwarder import StartError
from qmadmin.forwarder.descriptions import HttpDescription
from qmadmin.forwarder.http_service import HttpService
from tests.fix_http import read_request
from tests.fix_process import eventually
from tests.fix_service import Calling, call, failure_of, unavailability_of
from tests.fix_store import DESCRIPTORS

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone"
SOON = 0.2


@pytest.fixture
def serve(tmp_path):
    """Make a service for an address, and close it."""
    made = []

    def make(url, workers=1, **keys):
        made.append(HttpService(HttpDescription(name="S", url=url, **keys), str(tmp_path), {}, workers))
        return made[-1]

    yield make
    for service in made:
        service.close()


def test_connection_is_kept_for_the_next_call(serve, server):
    web = server()
    service = serve(web.url)
    for _ in range(5):
        call(service)
    assert len({seen.connection for seen in web.seen}) == 1


def test_several_threads_have_connections_of_their_own_and_share_what_is_kept(serve, server):
    meeting = threading.Barrier(3)

    def answer(seen):
        meeting.wait(60)
        return 200, {}, seen.body

    web = server(answer)
    service = serve(web.url, workers=3)
    for _ in range(3):
        callings = [Calling(service, str(number)) for number in range(3)]
        assert [calling.wait().body for calling in callings] == [b"0", b"1", b"2"]
    assert len({seen.connection for seen in web.seen}) == 3


def test_no_more_connections_are_kept_than_there_are_workers(serve, raw_server):
    meeting = threading.Barrier(3)
    ended = []

    def act(connection, number):
        while read_request(connection):
            meeting.wait(60)
            connection.sendall(OK)
        ended.append(number)

    service = serve(raw_server(act).url, workers=2)
    for calling in [Calling(service) for _ in range(3)]:
        assert calling.wait().body == b"done"
    eventually(lambda: len(ended) == 1)


def test_connection_that_the_server_has_closed_meanwhile_is_made_again(serve, raw_server):
    def act(connection, number):
        read_request(connection)
        connection.sendall(OK)
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    web = raw_server(act)
    service = serve(web.url)
    for _ in range(3):
        assert call(service).body == b"done"
    assert web.count == 3


def test_request_is_sent_once_more_when_a_kept_connection_breaks_under_it(serve, raw_server):
    seen = []

    def act(connection, number):
        while request := read_request(connection):
            seen.append((number, request.rpartition(b"\r\n")[2]))
            if number == 1 and len(seen) == 2:
                connection.shutdown(socket.SHUT_RDWR)
                return
            connection.sendall(OK)

    service = serve(raw_server(act).url)
    assert call(service, "a").body == b"done"
    assert call(service, "b").body == b"done"
    assert seen == [(1, b"a"), (1, b"b"), (2, b"b")]


def test_connection_that_is_lost_when_it_is_new_is_a_failure(serve, raw_server):
    def act(connection, number):
        read_request(connection)
        connection.shutdown(socket.SHUT_RDWR)

    web = raw_server(act)
    assert str(failure_of(serve(web.url))).startswith("the connection ended without an answer: ")
    assert web.count == 1


def test_answer_that_is_cut_off_is_a_failure(serve, raw_server):
    def act(connection, number):
        read_request(connection)
        connection.sendall(OK[:-1])
        connection.shutdown(socket.SHUT_RDWR)

    service = serve(raw_server(act).url)
    assert str(failure_of(service)).startswith("the connection ended in the middle of the answer: ")


def test_what_is_no_http_is_a_failure(serve, raw_server):
    def act(connection, number):
        read_request(connection)
        connection.sendall(b"220 mail.example ESMTP\r\n")
        connection.shutdown(socket.SHUT_RDWR)

    assert str(failure_of(serve(raw_server(act).url))).startswith("the connection ended without an answer: ")


def test_answer_that_comes_before_the_whole_request_was_sent_counts(serve, raw_server):
    def act(connection, number):
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            pass

    failed = failure_of(serve(raw_server(act).url), b"x" * 10_000_000)
    assert (str(failed), failed.permanent) == ("answered 413 Too Large", True)


# ---- time ----


def dripping(prefix, connections):
    """Send a beginning, then a byte now and then, for ever."""

    def act(connection, number):
        connections.append(connection)
        if prefix is not None:
            read_request(connection)
            connection.sendall(prefix)
        stop = threading.Event()
        while not stop.wait(0.02):
            connection.sendall(b"x")

    return act


@pytest.mark.parametrize(
    "prefix",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX-Long: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
    ],
)
def test_server_that_drips_does_not_keep_the_call_up(serve, raw_server, prefix):
    service = serve(raw_server(dripping(prefix, [])).url)
    assert str(failure_of(service, seconds=SOON)) == f"no reply within {SOON} seconds"


def test_server_that_says_nothing_does_not_keep_the_call_up(serve, raw_server):
    web = raw_server(lambda connection, number: read_request(connection))
    assert str(failure_of(serve(web.url), seconds=SOON)) == f"no reply within {SOON} seconds"


def test_server_that_reads_nothing_does_not_keep_the_call_up(serve, raw_server):
    web = raw_server(lambda connection, number: None)
    failed = failure_of(serve(web.url), b"x" * 30_000_000, seconds=SOON)
    assert str(failed) == f"no reply within {SOON} seconds"


def test_call_without_a_limit_waits(serve, server):
    assert call(serve(server((200, {}, b"a")).url), seconds=float("inf")).body == b"a"


def test_connection_of_a_call_that_was_too_long_is_not_used_again(serve, raw_server):
    go = threading.Event()

    def act(connection, number):
        while read_request(connection):
            if number == 1:
                go.wait(60)
            connection.sendall(OK)

    web = raw_server(act)
    service = serve(web.url)
    failure_of(service, seconds=SOON)
    go.set()
    assert call(service).body == b"done"
    assert web.count == 2


def test_stop_cuts_the_connections_on_which_calls_wait_and_makes_no_more(serve, raw_server):
    there = threading.Event()

    def act(connection, number):
        read_request(connection)
        there.set()

    service = serve(raw_server(act).url)
    calling = Calling(service)
    assert there.wait(60)
    service.stop_calls()
    assert str(calling.wait()) == "the forwarder stops"
    assert str(unavailability_of(service)) == "the forwarder stops"


# ---- servers that are not there ----


def test_connection_that_is_refused_is_no_try_of_the_message(serve):
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        service = serve(f"http://127.0.0.1:{unheard.getsockname()[1]}/")
        assert str(unavailability_of(service)) == "the server cannot be reached: Connection refused"


def test_name_that_is_unknown_is_no_try_of_the_message(serve):
    told = str(unavailability_of(serve("http://nowhere.invalid/")))
    assert told.startswith("the server cannot be reached: ")
    assert "object at" not in told


# ---- TLS ----


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def ca(authority, tmp_path):
    """Write the certificate of the authority into a file; return its name."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return "ca.pem"


def tls_of(authority, name="localhost"):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def test_server_is_known_by_its_certificate(serve, server, authority, ca):
    web = server((200, {}, b"done"), tls=tls_of(authority))
    service = serve(web.url, ca=ca)
    assert [call(service).body for _ in range(2)] == [b"done"] * 2
    assert len({seen.connection for seen in web.seen}) == 1


def test_server_that_is_not_known_is_sent_nothing(serve, server, authority, ca, tmp_path):
    web = server(tls=tls_of(authority))
    other = server(tls=tls_of(authority, "elsewhere.example"))
    for service in (serve(web.url), serve(other.url, ca=ca)):
        assert "CERTIFICATE_VERIFY_FAILED" in str(unavailability_of(service))
    assert web.seen == other.seen == []


def test_server_that_does_not_speak_tls_cannot_be_reached(serve, server, ca):
    url = server().url.replace("http:", "https:")
    assert str(unavailability_of(serve(url, ca=ca))).startswith("the server cannot be reached: ")


def test_handshake_that_drips_does_not_keep_the_call_up(serve, raw_server, ca):
    # The header of a record that never is complete.
    def act(connection, number):
        connection.recv(100)
        connection.sendall(b"\x16\x03\x03\x40\x00")
        stop = threading.Event()
        while not stop.wait(0.02):
            connection.sendall(b"\2")

    url = raw_server(act).url.replace("http:", "https:")
    assert str(unavailability_of(serve(url, ca=ca), seconds=SOON)).startswith("the server cannot be reached: ")


def test_certificate_is_shown_to_a_server_that_asks_for_one(serve, server, authority, ca, tmp_path):
    tls = tls_of(authority)
    tls.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(tls)
    web = server((200, {}, b"done"), tls=tls)
    mine = authority.issue_cert("me@example.org")
    mine.private_key_pem.write_to_path(tmp_path / "key.pem")
    mine.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    mine.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    assert call(serve(web.url, ca=ca, certificate="cert.pem", key="key.pem")).body == b"done"
    assert call(serve(web.url, ca=ca, certificate="both.pem")).body == b"done"
    for _ in range(10):
        refused = str(unavailability_of(serve(web.url, ca=ca), b"x" * 100_000))
        assert refused.startswith(("the server refuses the connection: ", "the server cannot be reached: "))


def test_files_of_tls_that_cannot_be_used_are_named_at_the_start(serve, authority, ca, tmp_path):
    (tmp_path / "empty.pem").write_text("")
    url = "https://localhost:1/"
    for keys, told in (
        ({"ca": "none.pem"}, "service 'S': ca 'none.pem' cannot be used: No such file or directory"),
        ({"ca": "empty.pem"}, "service 'S': ca 'empty.pem' cannot be used: "),
        ({"certificate": "none.pem"}, "service 'S': certificate 'none.pem' cannot be used: No such file or directory"),
    ):
        with pytest.raises(StartError) as refused:
            serve(url, **keys)
        assert str(refused.value).startswith(told)


def test_key_that_needs_a_password_is_refused_and_nobody_is_asked(serve, authority, tmp_path):
    from cryptography.hazmat.primitives import serialization as form

    mine = authority.issue_cert("me@example.org")
    key = form.load_pem_private_key(mine.private_key_pem.bytes(), None)
    locked = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(b"x"))
    (tmp_path / "locked.pem").write_bytes(mine.cert_chain_pems[0].bytes() + locked)
    with pytest.raises(StartError, match=r"certificate 'locked\.pem' cannot be used: its key needs a password"):
        serve("https://localhost:1/", certificate="locked.pem")


CALLS = f"""
{DESCRIPTORS}
from qmadmin.forwarder.descriptions import HttpDescription
from qmadmin.forwarder.http_service import HttpService
from tests.fix_service import call

before = descriptors()
service = HttpService(HttpDescription(name="S", url=sys.argv[1]), sys.argv[2], {{}}, 1)
call(service)
service.close()
say(descriptors() - before)
"""


def test_calls_leave_no_descriptors_behind(server, start, tmp_path):
    child = start(CALLS, server().url, tmp_path)
    child.expect("set()")
    child.finish()
