"""What becomes of a forwarder, and of what it has in hand, when the store is away for a while or is made again."""

import resource

import pytest

from qmadmin import QueueDefinition
from tests.fix_disk import fill, mounted
from tests.fix_postgres import login_of
from tests.fix_process import Site, eventually

SERVER = """
def answer(request):
    return request.text
"""

SERVICES = '[services.WORK]\npython = "server:answer"\n'


@pytest.mark.parametrize("batch", ["1", "10"])
def test_a_server_that_crashes_and_comes_back_loses_and_doubles_nothing(site, own_cluster, monkeypatch, batch):
    site.device = own_cluster.url("postgres")
    site.device += ("&" if "?" in site.device else "?") + "schema=outage"
    for name, value in login_of(site.device).items():
        monkeypatch.setenv(name, value)
    site.services(SERVICES, server=SERVER)
    space = site.lay_out(QueueDefinition(name="WORK", retries=50), "RPLYQ", "ERRQUE", messages=5000)
    for number in range(600):
        space.enqueue("WORK", str(number), reply_queue="RPLYQ")
    forwarder = site.start("-q", "WORK", "-w", "4", "--batch", batch)
    eventually(lambda: space.usage("RPLYQ").messages > 50)
    own_cluster.kill()
    forwarder.wait_until_logged("trying again each second")
    own_cluster.start()
    eventually(lambda: space.usage("WORK").messages == 0)
    replies = sorted(int(reply.text) for reply in site.all_of("RPLYQ"))
    assert replies == list(range(600))
    forwarder.stop()
    # That the server was away is the fault of no service.
    assert "failed on message" not in forwarder.log()
    assert "0 calls failed" in forwarder.log()


@pytest.fixture
def small_site(tmp_path, fork_server):
    """A site on a disk of its own."""
    with mounted(tmp_path / "disk", "24m") as directory:
        site = Site(directory, fork_server)
        yield site
        site.close()


@pytest.mark.parametrize("batch", ["1", "10"])
def test_a_full_disk_is_no_failure_of_a_message_and_all_goes_on_when_there_is_room(small_site, tmp_path, batch):
    small_site.services(SERVICES, server="def answer(request):\n    return request.body * 3\n")
    space = small_site.lay_out(QueueDefinition(name="WORK", retries=2), "RPLYQ", "ERRQUE")
    for _ in range(300):
        space.enqueue("WORK", bytes(3000), reply_queue="RPLYQ")
    filling = fill(small_site.directory)
    # The log is on another disk, and has the day in its name.
    forwarder = small_site.start("-q", "WORK", "--batch", batch, logs=tmp_path, ULOGPFX=str(tmp_path / "ULOG"))
    forwarder.wait_until_logged("queue 'WORK' is paused: QMEOS")
    filling.unlink()
    eventually(lambda: space.usage("RPLYQ").messages == 300)
    forwarder.stop()
    assert [space.usage(queue).messages for queue in ("WORK", "ERRQUE")] == [0, 0]
    assert "300 messages forwarded, 0 calls failed" in forwarder.log()


NARROW = """
import resource

seen = set()

def answer(request):
    if request.text in ("3", "13", "23") and request.text not in seen:
        seen.add(request.text)
        # Neither the commit nor the rollback finds room from now on.
        resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, resource.RLIM_INFINITY))
    return request.text
"""


@pytest.mark.parametrize("batch", ["1", "10"])
def test_a_strict_order_holds_although_the_disk_is_full_now_and_then(site, batch):
    site.services(SERVICES + 'order = "strict"\n', server=NARROW)
    space = site.lay_out("WORK", "RPLYQ", "ERRQUE")
    forwarder = site.start("-q", "WORK", "--batch", batch)
    for number in range(30):
        space.enqueue("WORK", str(number), reply_queue="RPLYQ")
    for outage in range(3):
        eventually(
            lambda before=outage: forwarder.log().count("a rollback on queue space 'QSPACE' is postponed") > before
        )
        resource.prlimit(forwarder.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    eventually(lambda: space.usage("RPLYQ").messages == 30)
    forwarder.stop()
    assert [reply.text for reply in site.all_of("RPLYQ")] == [str(number) for number in range(30)]


def test_a_queue_space_that_is_made_again_is_served_again(site):
    site.services(SERVICES, server=SERVER)
    space = site.lay_out("WORK", "RPLYQ", "ERRQUE")
    forwarder = site.start("-q", "WORK", "-w", "3")
    msgid = space.enqueue("WORK", "a", reply_queue="RPLYQ")
    assert space.dequeue("RPLYQ", corrid=msgid, wait=60).text == "a"
    definition = space.definition
    space.close()
    site.administered.destroy_space("QSPACE", force=True)
    site.administered.create_space(definition)
    with site.reopened() as space:
        for queue in ("WORK", "RPLYQ"):
            space.create_queue(QueueDefinition(name=queue))
        msgid = space.enqueue("WORK", "b", reply_queue="RPLYQ")
        assert space.dequeue("RPLYQ", corrid=msgid, wait=60).text == "b"
    forwarder.stop()
