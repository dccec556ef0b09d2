"""SIGHUP: the services are made again, or stay as they are; and what a service that cannot work does to its queue."""

import signal

import pytest

from tests.fix_process import eventually

SERVER = """
import pathlib, time
from qmadmin.forwarder import Failure, Unavailable

HERE = pathlib.Path(__file__).parent


def one(request):
    return "one " + request.text


def two(request):
    return "two " + request.text


def wait(request):
    (HERE / "calls").write_text("begun\\n")
    while not (HERE / "go").exists():
        time.sleep(0.005)
    return "old " + request.text


def sulks(request):
    with open(HERE / "calls", "a") as calls:
        calls.write("sulks\\n")
    if not (HERE / "go").exists():
        raise Unavailable("the database is down")
    return "at last"
"""
ONE = '[services.ONE]\npython = "server:one"\n'
TWO = '[services.ONE]\npython = "server:two"\n'


@pytest.fixture
def space(site):
    site.services(ONE, server=SERVER)
    return site.lay_out("ONE", "NEW", "RPLYQ", "ERRQUE")


def ask(space, queue, body="x"):
    msgid = space.enqueue(queue, body, reply_queue="RPLYQ")
    return space.dequeue("RPLYQ", corrid=msgid, wait=60).text


def reload(site, forwarder, text, said):
    before = forwarder.log().count(said)
    site.services(text)
    forwarder.tell(signal.SIGHUP)
    eventually(lambda: forwarder.log().count(said) > before, said)


def test_the_services_of_the_file_are_called_from_then_on(site, space):
    forwarder = site.start("-q", "ONE")
    assert ask(space, "ONE") == "one x"
    reload(site, forwarder, TWO, "the services are loaded again")
    assert ask(space, "ONE") == "two x"
    forwarder.stop()


def test_calls_that_run_end_with_the_service_that_they_began_with(site, space):
    site.services('[services.ONE]\npython = "server:wait"\n')
    forwarder = site.start("-q", "ONE")
    msgid = space.enqueue("ONE", "x", reply_queue="RPLYQ")
    site.wait_for_calls()
    reload(site, forwarder, TWO, "the services are loaded again")
    (site.directory / "go").touch()
    assert space.dequeue("RPLYQ", corrid=msgid, wait=60).text == "old x"
    assert ask(space, "ONE") == "two x"


def test_without_queues_named_all_services_of_the_file_are_served_and_new_ones_too(site, space):
    forwarder = site.start()
    assert ask(space, "ONE") == "one x"
    reload(site, forwarder, ONE + '[services.NEW]\npython = "server:two"\n', "the services are loaded again")
    assert (ask(space, "ONE"), ask(space, "NEW")) == ("one x", "two x")
    reload(site, forwarder, '[services.NEW]\npython = "server:two"\n', "the services are loaded again")
    space.enqueue("ONE", "unserved")
    assert ask(space, "NEW") == "two x"
    assert space.usage("ONE").messages == 1
    forwarder.stop()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[services.ONE\n", "is not TOML"),
        (TWO.replace("python", "pyton"), "unknown key 'pyton'"),
        (TWO.replace("two", "three"), "three"),
        ('[services.OTHER]\npython = "server:two"\n', "has no service for queue 'ONE'"),
    ],
)
def test_a_file_with_a_fault_changes_nothing(site, space, text, said):
    forwarder = site.start("-q", "ONE")
    reload(site, forwarder, text, "the services stay as they are")
    assert said in forwarder.log()
    assert ask(space, "ONE") == "one x"
    forwarder.stop()


def test_a_service_that_cannot_work_is_no_try_and_its_queue_is_paused(site, space):
    site.services('[services.ONE]\npython = "server:sulks"\n[services.NEW]\npython = "server:one"\n')
    forwarder = site.start("-q", "ONE,NEW")
    msgid = space.enqueue("ONE", "x", reply_queue="RPLYQ")
    site.wait_for_calls(3)
    assert "queue 'ONE' is paused: the database is down" in forwarder.log()
    assert ask(space, "NEW") == "one x"
    told = eventually(lambda: [told for _, told in space.forwardings() if told.queue == "ONE" and told.trouble])[0]
    assert (told.trouble, told.failures, told.retries) == ("the database is down", 0, 0)
    (site.directory / "go").touch()
    assert space.dequeue("RPLYQ", corrid=msgid, wait=60).text == "at last"
    forwarder.wait_until_logged("queue 'ONE' is served again")
    assert space.usage("ERRQUE").messages == 0


def test_a_queue_without_a_service_is_paused_and_served_when_there_is_one(site, space):
    msgid = space.enqueue("NEW", "x", reply_queue="RPLYQ")
    forwarder = site.start("-q", "ONE,NEW")
    forwarder.wait_until_logged("queue 'NEW' is paused: services file")
    assert ask(space, "ONE") == "one x"
    reload(site, forwarder, ONE + '[services.NEW]\npython = "server:two"\n', "the services are loaded again")
    assert space.dequeue("RPLYQ", corrid=msgid, wait=60).text == "two x"
    assert eventually(lambda: space.usage("NEW").messages == 0)


def test_a_module_that_appears_later_is_found_without_a_reload(site, space):
    site.services(ONE + '[services.NEW]\npython = "later:call"\n')
    forwarder = site.start("-q", "ONE,NEW")
    msgid = space.enqueue("NEW", "x", reply_queue="RPLYQ")
    forwarder.wait_until_logged("module 'later' cannot be imported")
    (site.directory / "later.py").write_text("def call(request):\n    return 'found'\n")
    assert space.dequeue("RPLYQ", corrid=msgid, wait=60).text == "found"


def test_the_log_is_begun_again_after_a_rotation_also_when_the_reload_is_refused(site, space):
    forwarder = site.start("-q", "ONE")
    (log,) = site.directory.glob("ULOG.*")
    log.rename(site.directory / "rotated")
    before = (site.directory / "rotated").read_text()
    reload(site, forwarder, "no TOML", "the services file was not loaded")
    assert "the services file was not loaded" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    log.unlink()
    reload(site, forwarder, TWO, "the services are loaded")
    assert ask(space, "ONE") == "two x"
    assert (site.directory / "rotated").read_text() == before
