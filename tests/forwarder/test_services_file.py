"""What a services file may say, and what is refused in one sentence before any message is touched."""

import os
import sys
import tomllib

import pytest

from qmadmin.forwarder import StartError
from qmadmin.forwarder.descriptions import PythonDescription, description
from qmadmin.forwarder.services_file import ServicesFile
from qmcore.backoff import Growth
from qmcore.queue import RetryPolicy
from tests.fix_service import call

FILE = "services file 'services.toml'"
S = f"service 'S' in {FILE}"
URL = "[services.S]\nurl = 'http://a/'\n"

SERVER = """
def upper(request):
    return request.text.upper()


async def later(request):
    return request.body


constant = 17
"""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """The current directory, with a module `server`; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    (tmp_path / "server.py").write_text(SERVER)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def services(directory, text, *names, **settings):
    """Return the services of these names, ready to be called."""
    (directory / "services.toml").write_text(text)
    file = ServicesFile.read("services.toml")
    return [file.service(name, {**os.environ, **settings}) for name in names or ["S"]]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[services", f"{FILE} is not TOML: "),
        ("a = " + "[" * 2000, f"{FILE} is not TOML: "),
        ("[service.S]", f"{FILE} has the unknown key 'service'; did you mean 'services'?"),
        ("services = 1", f"services in {FILE} must be a table, got 1"),
        ("services.S = 1", f"{S} must be a table, got 1"),
        ("[services.S]\npyhton = 'a:b'", f"{S} has the unknown key 'pyhton'; did you mean 'python'?"),
        (
            "[services.S]\nzzz = 'a:b'",
            f"{S} has the unknown key 'zzz'; there are workers, order, batch, timeout, retries, ",
        ),
        ("[UP]\npython = 'a:b'", f"{FILE} has the unknown key 'UP'; did you mean [services.UP]?"),
        ("[services.S]", f"{S} must have one of python, command, url, and has none of them"),
        ("[services.S]\nworkers = 2", f"{S} must have one of python, command, url, and has none of them"),
        ("[services.S]\npython = 'a:b'\ncommand = ['a']", f"{S} must have one of python, command, url, and has both p"),
        (
            "[services.S]\npython = 'a:b'\nmethod = 'PUT'",
            f"{S} has the key 'method', which belongs to services with url",
        ),
        ("[services.S]\npython = 'server'", f"{S}: python must be of the form 'module:function', got 'server'"),
        ("[services.S]\npython = 1", f"{S}: python must be of the form 'module:function', got 1"),
        ("[services.S]\npython = 'a b:c'", f"{S}: python must be of the form 'module:function', got 'a b:c'"),
        ("[services.S]\npython = 'a:b'\nrun = 'fiber'", f"{S}: run must be one of thread, process, got 'fiber'"),
        ("[services.S]\npython = 'a:b'\nworkers = 0", f"{S}: workers must be a whole number from 1 to 1000, got 0"),
        (
            "[services.S]\npython = 'a:b'\nworkers = true",
            f"{S}: workers must be a whole number from 1 to 1000, got true",
        ),
        ("[services.S]\npython = 'a:b'\nbatch = 1001", f"{S}: batch must be a whole number from 1 to 1000, got 1001"),
        ("[services.S]\npython = 'a:b'\norder = 'any'", f"{S}: order must be one of skip, strict, parallel, got 'any'"),
        ("[services.S]\npython = 'a:b'\ntimeout = 0", f"{S}: timeout must be a number of seconds above 0, at most 2"),
        ("[services.S]\npython = 'a:b'\ntimeout = inf", f"{S}: timeout must be a number of seconds above 0, at most 2"),
        (
            "[services.S]\npython = 'a:b'\norder = 'strict'\nworkers = 2",
            f'{S}: order = "strict" requires workers = 1, got 2',
        ),
        ("[services.S]\ncommand = 'tr a b'", f"{S}: command must be a list of text such as ["),
        ("[services.S]\ncommand = []", f"{S}: command must be a list of text such as ["),
        ("[services.S]\ncommand = ['a', 1]", f"{S}: command must be a list of text such as ["),
        ('[services.S]\ncommand = ["a", "\\u0000"]', f"{S}: command must be a list of text such as ["),
        ("[services.S]\ncommand = ['']", f"{S}: command must be a list of text such as ["),
        ("[services.S]\ncommand = ['true']\nenvironment = {'a=b' = 'c'}", f"{S}: environment must be a table of text"),
        ("[services.S]\ncommand = ['true']\nenvironment = {a = 1}", f"{S}: environment must be a table of text such a"),
        ("[services.S]\ncommand = ['true']\ndirectory = ''", f"{S}: directory must be the name of a directory, got ''"),
        ("[services.S]\ncommand = ['true']\ndirectory = 'x'", "service 'S': there is no directory 'x'"),
        ("[services.S]\ncommand = ['./folder']", "service 'S': command './folder' was not found, or may not be run"),
        ("[services.S]\ncommand = ['no-such-tool']", "service 'S': command 'no-such-tool' was not found, or may not"),
        ("[services.S]\ncommand = ['./server.py']", "service 'S': command './server.py' was not found, or may not be"),
        ("[services.SS]\ncommand = ['true']", f"{FILE} has no service for queue 'S'; did you mean 'SS'?"),
        ("[services.S]\npython = 'none:upper'", "service 'S': module 'none' cannot be imported: ModuleNotFoundError: "),
        ("[services.S]\npython = 'bad:upper'", "service 'S': module 'bad' cannot be imported: SystemExit: 7"),
        ("[services.S]\npython = 'server:uper'", "service 'S': module 'server' has no function 'uper'; did you mean"),
        ("[services.S]\npython = 'server:constant'", "service 'S': 'server:constant' is a int, which cannot be called"),
        ("[services.S]\nurl = 'ftp://a/b'", f"{S}: url must be an address that begins with http:// or https://"),
        ("[services.S]\nurl = 'http://'", f"{S}: url must be an address that begins with http:// or https://"),
        ("[services.S]\nurl = 'http://a:99999/'", f"{S}: url must be an address that begins with http:// or https://"),
        (f"{URL}method = 'A B'", f"{S}: method must be the name of an HTTP method such as POST, got 'A B'"),
        (f"{URL}headers = {{'a b' = 'c'}}", f"{S}: headers must be a table of text such as"),
        (f'{URL}headers = {{a = "b\\r\\nc: d"}}', f"{S}: headers must be a table of text such as"),
        (f"{URL}reply_headers = ['a:']", f"{S}: reply_headers must be a list of names of headers such as"),
        (f"{URL}permanent = [200]", f"{S}: permanent must be a list of statuses from 300 to 599, got [200]"),
        (f"{URL}permanent = [500, 404]\ntransient = [404]", f"{S} has status 404 both in permanent and in transient"),
        (f"{URL}token_env = 'A'\ntoken_file = 'b'", f"{S} has both token_env and token_file; one of them is enough"),
        (f"{URL}token_env = 'A'\nuser = 'b'", f"{S} has a token and a user or password; a request can only have one"),
        (f"{URL}user = 'b'", f"{S} has a user without a password"),
        (f"{URL}password_env = 'b'", f"{S} has a password without a user"),
        (f"{URL}password_env = 'b'\nuser = 'a:b'", f"{S} must have no colon in user"),
        (f"{URL}key = 'b'", f"{S} has a key without a certificate"),
    ],
)
def test_wrong_services_file_is_refused(directory, text, sentence):
    (directory / "bad.py").write_text("raise SystemExit(7)")
    (directory / "folder").mkdir()
    with pytest.raises(StartError) as refused:
        services(directory, text)
    assert str(refused.value).startswith(sentence)
    assert "\n" not in str(refused.value)


def test_services_file_that_is_no_text_is_refused(directory):
    (directory / "services.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(StartError, match=r"^services file 'services\.toml' is not TOML: "):
        ServicesFile.read("services.toml")


def test_directory_of_the_file_is_searched_before_all_others(directory):
    (directory / "tabnanny.py").write_text("def upper(request):\n    return 'ours'\n")
    (found,) = services(directory, "services.S.python = 'tabnanny:upper'")
    assert found.function(None) == "ours"


def test_function_may_be_one_of_a_class_in_a_package(directory):
    (directory / "desk").mkdir()
    (directory / "desk" / "front.py").write_text("class Desk:\n    def upper(request):\n        return 'ours'\n")
    (found,) = services(directory, "services.S.python = 'desk.front:Desk.upper'")
    assert found.function(None) == "ours"


@pytest.mark.parametrize(("command", "place"), [("./tool", "tool"), ("bin/tool", "bin/tool"), ("tool", "path/tool")])
def test_command_is_looked_for_beside_the_file_or_in_the_path(directory, monkeypatch, command, place):
    for name in ("tool", "bin/tool", "path/tool"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(f"#!/bin/sh\necho {name}\n")
        (directory / name).chmod(0o755)
    (directory / "services.toml").write_text(f"services.S.command = ['{command}']")
    monkeypatch.chdir("/")
    found = ServicesFile.read(str(directory / "services.toml"))
    service = found.service("S", {"PATH": str(directory / "path")})
    assert call(service).body == f"{place}\n".encode()


def test_secrets_are_not_in_what_is_said_of_a_wrong_key(directory):
    for wrong in ("url = 'http://me:hunter2@a/'", "headers = {'X-Key' = 'hunter2', 'a b' = ''}", "headers = 'hunter2'"):
        with pytest.raises(StartError) as refused:
            services(
                directory,
                f"[services.S]\nurl = 'http://a/'\n{wrong}" if "url" not in wrong else f"[services.S]\n{wrong}",
            )
        assert "hunter2" not in str(refused.value)
    file = "[services.S]\nurl = 'http://a/?key=hunter2'\nheaders = {'X-Key' = 'hunter2'}"
    (directory / "services.toml").write_text(file)
    assert "hunter2" not in repr(ServicesFile.read("services.toml").description("S"))


def test_keys_that_are_not_given_have_their_defaults(directory):
    (directory / "services.toml").write_text(
        "[services]\nA.python = 'a:b'\nB = {python = 'a:b', workers = 3}\n"
        "C = {python = 'a:b', workers = 3, order = 'skip', batch = 5, timeout = 0.5, run = 'process'}"
    )
    file = ServicesFile.read("services.toml")
    assert file.names == ("A", "B", "C")
    assert file.description("A") == PythonDescription(name="A", python="a:b")
    told = [
        (one.workers, one.order, one.batch, one.timeout, one.run)
        for name in file.names
        if (one := file.description(name))
    ]
    assert told == [
        (None, "", None, None, "thread"), (3, "", None, None, "thread"), (3, "skip", 5, 0.5, "process"),
    ]  # fmt: skip


def test_check_tells_all_that_is_wrong_and_tries_out_the_rest(directory):
    (directory / "services.toml").write_text(
        """
        [services]
        GOOD.python = "server:upper"
        ALSO.command = ["true"]
        TYPO.pyhton = "server:upper"
        GONE.python = "none:upper"
        TOOL.command = ["no-such-tool"]
        """
    )
    _, faults = ServicesFile.check("services.toml", os.environ)
    assert [fault.partition(":")[0] for fault in faults] == [
        "service 'TYPO' in services file 'services.toml' has the unknown key 'pyhton'; did you mean 'python'?",
        "service 'GONE'",
        "service 'TOOL'",
    ]
    assert ServicesFile.check("none.toml", {})[1] == ["there is no services file 'none.toml'"]
    (directory / "services.toml").write_text('[services]\nGOOD.python = "server:upper"')
    assert ServicesFile.check("services.toml", os.environ)[1] == []


@pytest.mark.parametrize(("written", "seconds"), [("90", 90), ("'2m'", 120.0), ("'1.5h'", 5400.0), ("0.5", 0.5)])
def test_timeout_may_have_a_unit(written, seconds):
    assert (
        description("A", {"url": "http://localhost/", "timeout": tomllib.loads(f"x = {written}")["x"]}).timeout
        == seconds
    )


@pytest.mark.parametrize("kind", [{"url": "http://localhost/"}, {"command": ["true"]}, {"python": "a:b"}])
def test_a_service_of_any_kind_may_have_a_retry_policy(kind):
    said = {"retries": 8, "retry_delay": "2m", "retry_growth": "linear", "retry_maximum": 600, "retry_jitter": 0.5}
    assert description("A", kind | said).retry_policy == RetryPolicy(
        retries=8, retry_delay=120, retry_growth=Growth.LINEAR, retry_maximum=600, retry_jitter=0.5
    )
    assert description("A", kind).retry_policy == RetryPolicy()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"retries": -1}, "retries must be a whole number from 0 to 2147483647, got -1"),
        ({"retry_delay": "soon"}, "retry_delay must be whole seconds from 0 to 2147483647, or a text such as '10m'"),
        ({"retry_delay": 0.5}, "retry_delay must be whole seconds"),
        ({"retry_growth": "fast"}, "retry_growth must be one of none, linear, exponential, got 'fast'"),
        ({"retry_factor": 0.5}, "retry_factor must be a number from 1 to 100, got 0.5"),
    ],
)
def test_a_retry_policy_that_means_nothing_is_refused(said, sentence):
    with pytest.raises(ValueError, match=sentence):
        description("A", {"python": "a:b"} | said)


@pytest.mark.parametrize("written", ["2x", "2 m", "0s", "99999d", "120", ""])
def test_timeout_that_is_no_span_is_refused(written):
    with pytest.raises(ValueError, match=r"timeout must be a number of seconds above 0, .* or a text such as '10m'"):
        description("A", {"url": "http://localhost/", "timeout": written})
