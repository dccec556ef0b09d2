"""Functions in Python, called in worker processes."""

import math
import os
import signal
import subprocess
import sys
import threading

import pytest

from qmadmin.forwarder import Failure, Park, Reply, Snooze, StartError, Unavailable
from tests.fix_process import environment, eventually, is_running
from tests.fix_service import NO_BODY, Calling, bodies, call, call_in, failure_of, unavailability_of
from tests.fix_store import DESCRIPTORS, freeze

SERVER = """
import asyncio, os, pathlib, signal, subprocess, sys, time
import qmadmin
from qmadmin.forwarder import Failure, Reply, Unavailable, enqueue, space

HERE = pathlib.Path(__file__).parent
calls = 0


class Text(str):
    pass


class Wrong(Exception):
    pass


def note(name):
    with open(HERE / name, "a") as file:
        file.write(f"{os.getpid()}\\n")


def tell(request):
    global calls
    calls += 1
    return f"{request.text} {request.queue} {os.getpid()} {calls} {os.environ.get('COLOR')}"


def reply(request):
    return Reply(Text("body"), urcode=7, type="JSON", headers={"a": "b"})


def echo(request):
    return memoryview(request.body)


def fail(request):
    more = {"urcode": 3, "type": "JSON", "headers": {"a": "b"}}
    raise {"failure": Failure("no", body=b"b", **more, permanent=True, retry_after=2),
           "unavailable": Unavailable("closed", retry_after=5),
           "snooze": qmadmin.Snooze(7, "closed"),
           "never": qmadmin.Snooze(-7),
           "park": qmadmin.Park("no price yet"),
           "nonsense": Failure("no", body=object()),
           "headers": Failure("no", headers={"a": Wrong()}),
           "wrong": Wrong("no account 17"),
           "exit": SystemExit("enough")}[request.text]


def die(request):
    exec(request.text)


def spin(request):
    if request.text == "not yet":
        return "ready"
    child = subprocess.Popen(["sleep", "1000"])
    (HERE / "spins").write_text(f"{os.getpid()} {child.pid} \\n")
    while True:
        pass


def meet(request):
    note("met")
    while len((HERE / "met").read_text().split()) < 2:
        time.sleep(0.005)
    return str(os.getpid())


def chain(request):
    enqueue("NEXT", request.body, priority=7)
    if request.text == "stopped":
        enqueue("STOPPED", "a")
    if request.text == "none":
        enqueue("NONE", "a")
    if request.text == "wrong":
        enqueue("NEXT", "a", prority=7)
    if request.text == "space":
        space()
    if request.text == "bad":
        raise Wrong
    return "done"


async def later(request):
    await asyncio.sleep(0)
    enqueue("NEXT", "from a coroutine")
    return request.text.upper()


def fork(request):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return "parent"
    if request.text == "fails":
        raise Wrong
    return "child"


async def fork_later(request):
    return fork(request)


def talk(request):
    print("hello")
    return "done"


def nothing(request):
    return object()


def strange(request):
    enqueue("NEXT", Text("a"), headers={"a": Text("b")})
"""


@pytest.fixture
def serve(services):
    """Make a service of a function of the module above, in a number of processes."""

    def make(function, workers=1, **environ):
        text = f'python = "server:{function}"\nrun = "process"\nworkers = {workers}'
        return services.make(text, environ=environment(**environ), server=SERVER)

    return make


def told(file):
    """Wait for a line that a service has written, and return its numbers."""
    eventually(lambda: file.exists() and file.read_text().endswith("\n"), file.name)
    return [int(word) for word in file.read_text().split()]


def test_function_is_called_in_another_process_which_is_kept(serve):
    service = serve("tell", COLOR="blue")
    first, second = (call(service, "a", seconds).body.split() for seconds in (60.0, math.inf))
    assert first[:2] == ["a", "S"]
    assert int(first[2]) != os.getpid()
    assert first[2] == second[2]
    assert [first[3:], second[3:]] == [["1", "blue"], ["2", "blue"]]


def test_reply_comes_back_whole(serve):
    assert call(serve("reply")) == Reply("body", 7, "JSON", {"a": "b"})
    body = bytes(range(256)) * 40_000
    assert call(serve("echo"), body) == Reply(body)


@pytest.mark.parametrize("function", ["fork", "fork_later"])
def test_a_process_that_the_function_forks_ends_with_the_call_and_has_no_answer(serve, function):
    service = serve(function)
    assert [call(service, text).body for text in ("returns", "fails", "returns")] == ["parent"] * 3


def test_failures_come_back_as_they_were_raised(serve):
    service = serve("fail")
    failed = failure_of(service, "failure")
    assert (str(failed), failed.permanent, failed.retry_after) == ("no", True, 2)
    assert failed.reply == Reply(b"b", 3, "JSON", {"a": "b"})
    refused = unavailability_of(service, "unavailable")
    assert (str(refused), refused.retry_after) == ("closed", 5)
    wrong = failure_of(service, "wrong")
    assert str(wrong) == "Wrong: no account 17"
    assert 'server.py", line ' in str(wrong.__cause__)
    assert str(failure_of(service, "exit")) == "SystemExit: enough"
    assert str(failure_of(service, "nonsense")) == f"Failure: no; {NO_BODY}"
    assert str(failure_of(service, "headers")) == "its reply cannot be read: server.Wrong is not a plain value"


def test_what_puts_a_request_off_comes_back_as_it_was_raised(serve):
    service = serve("fail")
    with pytest.raises(Snooze, match=r"^closed$") as snoozed:
        call(service, "snooze")
    assert snoozed.value.retry_after == 7
    with pytest.raises(Park, match=r"^no price yet$"):
        call(service, "park")
    assert "its time must be seconds from 0 to" in str(failure_of(service, "never"))


def test_answer_that_is_no_reply_is_a_failure(serve):
    assert str(failure_of(serve("nothing"))) == NO_BODY


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("os._exit(3)", "its process ended with exit status 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "its process ended by SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "its process ended by SIGKILL"),
        ("os.closerange(3, 100); time.sleep(60)", "its process closed its connection"),
    ],
)
def test_process_that_dies_takes_its_call_with_it_and_the_next_call_has_another(serve, how, reason):
    service = serve("die")
    assert str(failure_of(service, how)) == reason
    assert call(service, "pass").body is None


def test_process_that_died_without_work_is_no_failure(serve):
    service = serve("tell")
    pid = int(call(service).body.split()[1])
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_running(pid))
    assert int(call(service).body.split()[1]) != pid


def test_process_that_dies_before_it_takes_the_request_is_no_failure(serve):
    service = serve("tell")
    pid = int(call(service).body.split()[1])
    # It looks alive, and takes nothing any more.
    freeze(pid)
    calling = Calling(service)
    eventually(lambda: service._busy)
    os.kill(pid, signal.SIGKILL)
    assert int(calling.wait().body.split()[1]) != pid


def test_call_that_takes_too_long_ends_the_process_with_all_that_it_started(serve, services):
    service = serve("spin")
    # Its process has started when the time begins to count.
    assert call(service, "not yet").body == "ready"
    assert str(failure_of(service, seconds=1)) == "no reply within 1 seconds"
    for pid in told(services.directory / "spins"):
        eventually(lambda: not is_running(pid))  # noqa: B023 - asked at once


def test_as_many_processes_work_at_the_same_time_as_there_are_workers(serve):
    service = serve("meet", workers=2)
    callings = [Calling(service) for _ in range(2)]
    assert len({calling.wait().body for calling in callings}) == 2


def test_call_beyond_the_workers_waits_and_is_no_try_when_none_becomes_free(serve, services):
    service = serve("meet", workers=1)
    calling = Calling(service)
    eventually((services.directory / "met").exists)
    refused = unavailability_of(service, seconds=0.05)
    assert str(refused) == "none of its worker processes became free within 0.05 seconds"
    with (services.directory / "met").open("a") as file:
        file.write("0\n")
    assert calling.wait().body


def test_messages_that_it_enqueues_belong_to_the_transaction_of_the_call(serve, queues):
    service = serve("chain")
    assert call_in(queues, service, "a").body == "done"
    assert [(message.body, message.priority) for message in iter(lambda: queues.dequeue("NEXT"), None)] == [(b"a", 7)]
    for body, kind, reason in (
        ("bad", Failure, "Wrong"),
        ("none", Failure, "its message for queue 'NONE' cannot be enqueued: there is no queue 'NONE'"),
        ("wrong", Failure, "TypeError: got an unexpected keyword argument 'prority'"),
        ("stopped", Unavailable, "its message for queue 'STOPPED' cannot be enqueued now: "),
        ("space", Failure, "ProtocolError: the queue space of a call is not available"),
    ):
        with pytest.raises(kind) as raised:
            call_in(queues, service, body)
        assert str(raised.value).startswith(reason)
        assert bodies(queues) == []


def test_what_only_the_module_of_the_service_knows_does_not_come_back(serve, queues):
    with pytest.raises(Failure, match=r"^its reply cannot be read: server\.Text is not a plain value$"):
        call_in(queues, serve("strange"))
    assert "server" not in sys.modules


def test_coroutine_function_is_awaited_in_the_process(serve, queues):
    service = serve("later")
    assert [call_in(queues, service, text).body for text in ("a", "b")] == ["A", "B"]
    assert bodies(queues) == [b"from a coroutine"] * 2


def test_stop_ends_the_processes_at_work_and_starts_no_more(serve, services):
    service = serve("spin")
    calling = Calling(service)
    pids = told(services.directory / "spins")
    service.stop_calls()
    assert str(calling.wait()) == "the forwarder stops"
    for pid in pids:
        eventually(lambda: not is_running(pid))  # noqa: B023 - asked at once
    assert str(unavailability_of(service)) == "the forwarder stops"


def test_signal_for_a_whole_group_of_processes_lets_a_call_be_finished(serve, services):
    service = serve("meet")
    calling = Calling(service)
    (pid,) = told(services.directory / "met")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid, number)
    with (services.directory / "met").open("a") as file:
        file.write("0\n")
    assert calling.wait().body == str(pid)


CLOSED = f"""
{DESCRIPTORS}
from pathlib import Path
from tests.fix_process import environment, is_running
from tests.fix_service import Calling, Services
from tests.forwarder.test_process_service import SERVER

before = descriptors()
text = 'python = "server:tell"\\nrun = "process"\\nworkers = 3'
service = Services(Path(sys.argv[1])).make(text, environ=environment(), server=SERVER)
pids = {{int(calling.wait().body.split()[1]) for calling in [Calling(service) for _ in range(3)]}}
service.close()
say([pid for pid in pids if is_running(pid)], descriptors() - before)
"""


def test_closed_service_has_no_processes_and_no_descriptors(start, tmp_path):
    child = start(CLOSED, tmp_path)
    child.expect("[] set()")
    child.finish()


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("server:none", "service 'S': module 'server' has no function 'none'"),
        ("absent:f", "service 'S': module 'absent' cannot be imported: ModuleNotFoundError: No module named 'absent'"),
        ("dying:f", "service 'S': its process ended with exit status 4 while it loaded its module"),
    ],
)
def test_function_that_is_not_there_is_told_at_the_start(services, function, told):
    services.write("dying.py", "import os\nos._exit(4)")
    with pytest.raises(StartError) as refused:
        services.make(f'python = "{function}"\nrun = "process"', environ=environment(), server=SERVER)
    assert str(refused.value).startswith(told)
    assert "server" not in sys.modules


def test_module_that_is_broken_later_is_no_try_of_the_message(serve, services):
    service = serve("die")
    services.write("server.py", "raise ValueError('half written')")
    failure_of(service, "os._exit(0)")
    told = "service 'S': module 'server' cannot be imported: ValueError: half written"
    assert str(unavailability_of(service)) == told


def test_new_service_has_processes_with_the_code_of_now(serve, services):
    assert call(serve("echo"), b"a").body == b"a"
    changed = SERVER.replace("return memoryview(request.body)", "return 'changed'")
    service = services.make('python = "server:echo"\nrun = "process"', environ=environment(), server=changed)
    assert call(service, b"a").body == "changed"


PARENT = """
import os, sys
from qmadmin.forwarder.services_file import ServicesFile
from tests.fix_service import call

service = ServicesFile.read("services.toml").service("S", os.environ)
{act}
"""


@pytest.mark.parametrize("function", ["spin", "tell", "hold"])
def test_no_worker_process_outlives_a_parent_that_is_killed(services, function):
    # "hold" does not even let the other threads of its process run.
    hold = "\nimport ctypes\n\n\ndef hold(request):\n    note('held')\n    ctypes.PyDLL(None).sleep(1000)\n"
    services.write("server.py", SERVER + hold)
    services.write("services.toml", f'[services.S]\npython = "server:{function}"\nrun = "process"')
    act = (
        "print(call(service).body, flush=True); sys.stdin.read()"
        if function == "tell"
        else "call(service, seconds=900)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(act=act)],
        cwd=services.directory, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if function == "tell":
            pids = [int(parent.stdout.readline().split()[1])]
        else:
            pids = told(services.directory / {"spin": "spins", "hold": "held"}[function])
        assert all(map(is_running, pids))
    finally:
        parent.kill()
        parent.communicate()
    for pid in pids:
        eventually(lambda: not is_running(pid))  # noqa: B023 - asked at once


def test_what_a_service_prints_is_no_part_of_its_reply(services):
    services.write("server.py", SERVER)
    services.write("services.toml", '[services.S]\npython = "server:talk"\nrun = "process"')
    act = "print(call(service).body); service.close()"
    done = subprocess.run(
        [sys.executable, "-c", PARENT.format(act=act)],
        cwd=services.directory, env=environment(), capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("done\n", "hello\n")


def test_threads_that_call_at_once_get_their_own_replies(serve):
    service = serve("tell", workers=2)
    found = {}

    def run(number):
        found[number] = [call(service, str(number)).body.split()[0] for _ in range(50)]

    threads = [threading.Thread(target=run, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [str(number)] * 50 for number in range(4)}
