"""What becomes of a forwarder, and of what it has in hand, when the store is away for a while or is made anew."""

import pytest

from qmadmin import QueueDefinition
from tests.fix_postgres import login_of
from tests.fix_process import eventually

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
    forwarder.wait_until_logged("looked for again each second")
    own_cluster.start()
    eventually(lambda: space.usage("WORK").messages == 0)
    replies = sorted(int(reply.text) for reply in site.all_of("RPLYQ"))
    assert replies == list(range(600))
    forwarder.stop()
    # That the server was away is the fault of no service.
    assert "failed on message" not in forwarder.log()
    assert "0 calls failed" in forwarder.log()


def test_a_queue_space_that_is_made_anew_is_served_again(site):
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
