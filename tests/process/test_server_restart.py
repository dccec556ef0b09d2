"""A forwarder whose server goes away and comes back: it goes on, and its calls end as they would have."""

import pytest

from tests.fix_postgres import login_of, or_do_without
from tests.fix_process import BEGIN_AND_WAIT, Site, eventually

pytest.importorskip("psycopg")

from tests.cluster import Cluster


@pytest.fixture
def cluster():
    with or_do_without():
        made = Cluster.of_its_own()
    yield made
    made.close()


@pytest.fixture
def site(cluster, tmp_path, monkeypatch, fork_server):
    directory = tmp_path / "a site"
    directory.mkdir()
    site = Site(directory, fork_server)
    site.device = f"{cluster.url()}?schema=forwarded"
    for name, value in login_of(site.device).items():
        monkeypatch.setenv(name, value)
    yield site
    site.close()


def test_a_forwarder_goes_on_when_its_server_is_back_and_gives_up_no_call(site, cluster):
    site.services(
        '[services]\nWORK.python = "server:call"\nQUICK.python = "server:quick"',
        server=BEGIN_AND_WAIT + "\n\ndef quick(request):\n    return request.text\n",
    )
    space = site.lay_out("WORK", "QUICK", "RPLYQ", "ERRQUE")
    forwarder = site.start("-q", "WORK,QUICK")
    sent = space.enqueue("WORK", "a", reply_queue="RPLYQ")
    site.wait_for_calls(1)
    cluster.stop("fast")
    forwarder.wait_until_logged("trying again each second")
    cluster.start()
    (site.directory / "go").touch()
    assert eventually(lambda: space.dequeue("RPLYQ", corrid=sent, wait=1)).text == "a"
    msgid = space.enqueue("QUICK", "b", reply_queue="RPLYQ")
    assert eventually(lambda: space.dequeue("RPLYQ", corrid=msgid, wait=1)).text == "b"
    assert len(site.calls()) == 1
    assert [space.usage(queue).messages for queue in ("WORK", "QUICK", "ERRQUE")] == [0, 0, 0]
    forwarder.stop()
    log = forwarder.log()
    assert "2 messages forwarded, 0 calls failed" in log
    assert (log.count("trying again"), log.count("the device can be used again")) == (1, 1)
