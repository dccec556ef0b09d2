"""What a services file may say, and what is refused in one sentence before any message is touched."""

import os
import sys

import pytest

from qmadmin.forwarder.errors import StartError
from qmadmin.forwarder.services_file import ServicesFile

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
    return ServicesFile.read("services.toml").services(names or ["STRING"], {**os.environ, **settings})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[services", "services file 'services.toml' is not TOML: "),
        ("[service.STRING]", "services file 'services.toml' has the unknown key 'service'; did you mean 'services'?"),
        ("services = 1", "services in services file 'services.toml' must be a table, got 1"),
        ("services.STRING = 1", "service 'STRING' in services file 'services.toml' must be a table, got 1"),
        (
            "[services.STRING]\npyhton = 'a:b'",
            "service 'STRING' in services file 'services.toml' has the unknown key 'pyhton'; did you mean 'python'?",
        ),
        (
            "[services.STRING]\nurl = 'a:b'",
            "service 'STRING' in services file 'services.toml' has the unknown key 'url'; known are python and command",
        ),
        ("[services.STRING]", "service 'STRING' in services file 'services.toml' must have either python or command"),
        (
            "[services.STRING]\npython = 'a:b'\ncommand = ['a']",
            "service 'STRING' in services file 'services.toml' must have either python or command, and has both",
        ),
        (
            "[services.STRING]\npython = 'server'",
            "service 'STRING' in services file 'services.toml': python must be of",
        ),
        (
            "[services.STRING]\npython = 1",
            "service 'STRING' in services file 'services.toml': python must be of the form",
        ),
        ("[services.STRING]\npython = 'a b:c'", "service 'STRING': python must be of the form 'module:function'"),
        (
            "[services.STRING]\ncommand = 'tr a b'",
            "service 'STRING' in services file 'services.toml': command must be a",
        ),
        (
            "[services.STRING]\ncommand = []",
            "service 'STRING' in services file 'services.toml': command must be a list",
        ),
        ("[services.STRING]\ncommand = ['a', 1]", "service 'STRING' in services file 'services.toml': every word of"),
        (
            '[services.STRING]\ncommand = ["a", "\\u0000"]',
            "service 'STRING' in services file 'services.toml': every word of",
        ),
        (
            "[services.STRING]\ncommand = ['']",
            "service 'STRING' in services file 'services.toml': command must be a list",
        ),
        ("[services.STRING]\ncommand = ['./folder']", "service 'STRING': command './folder' was not found, or may"),
        (
            "[services.STRIN]\ncommand = ['true']",
            "services file 'services.toml' has no service for queue 'STRING'; did you",
        ),
        (
            "[services.STRING]\npython = 'none:upper'",
            "service 'STRING': module 'none' cannot be imported: ModuleNotFound",
        ),
        ("[services.STRING]\npython = 'bad:upper'", "service 'STRING': module 'bad' cannot be imported: SystemExit: 7"),
        (
            "[services.STRING]\npython = 'server:uper'",
            "service 'STRING': module 'server' has no function 'uper'; did you",
        ),
        (
            "[services.STRING]\npython = 'server:constant'",
            "service 'STRING': 'server:constant' is a int, which cannot be",
        ),
        ("[services.STRING]\npython = 'server:later'", "service 'STRING': 'server:later' is an async function"),
        ("[services.STRING]\ncommand = ['no-such-tool']", "service 'STRING': command 'no-such-tool' was not found"),
        (
            "[services.STRING]\ncommand = ['./server.py']",
            "service 'STRING': command './server.py' was not found, or may",
        ),
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
    found = services(directory, "services.STRING.python = 'tabnanny:upper'")
    assert found["STRING"].function(None) == "ours"


def test_function_may_be_one_of_a_class_in_a_package(directory):
    (directory / "desk").mkdir()
    (directory / "desk" / "front.py").write_text("class Desk:\n    def upper(request):\n        return 'ours'\n")
    found = services(directory, "services.STRING.python = 'desk.front:Desk.upper'")
    assert found["STRING"].function(None) == "ours"


@pytest.mark.parametrize(("command", "place"), [("./tool", "tool"), ("bin/tool", "bin/tool"), ("tool", "path/tool")])
def test_command_is_looked_for_beside_the_file_or_in_the_path(directory, monkeypatch, command, place):
    for name in ("tool", "bin/tool", "path/tool"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(f"#!/bin/sh\necho {name}\n")
        (directory / name).chmod(0o755)
    (directory / "services.toml").write_text(f"services.STRING.command = ['{command}']")
    monkeypatch.chdir("/")
    found = ServicesFile.read(str(directory / "services.toml"))
    (service,) = found.services(["STRING"], {"PATH": str(directory / "path")}).values()
    assert service._command == [str(directory / place)]
