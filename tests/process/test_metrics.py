"""Statistics for Prometheus: what is in them, scraped over real HTTP, and the port that they take."""

from __future__ import annotations

import logging
import re
import socket
import sys
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from qmadmin import QueueDefinition
from qmadmin.consumers.statistics import Statistics
from qmadmin.monitoring.metrics_server import LOOPBACK, Address, served
from qmadmin.monitoring.prometheus import ProgramCollector, ServedSpace
from qmadmin.version import __version__
from qmcore.errors import InvalidArgumentError, OperatingSystemError
from qmcore.times import MICROS
from tests.fix_process import eventually
from tests.fix_store import MovableClock, Work

SERVICES = """
[services.STRING]
python = "server:upper"

[services.FAILS]
python = "server:fails"
"""
SERVER = """
def upper(request):
    return request.text.upper()

def fails(request):
    raise ValueError("no such account")
"""


logger = logging.getLogger("qmadmin.forwarder")

LABELS = ("space", "queue", "le", "version")


def samples(text):
    """Return the values of all samples by the name of the metric and the values of its labels."""
    return {
        (sample.name, *(sample.labels[label] for label in LABELS if label in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def clock():
    return MovableClock()


@pytest.fixture
def registry():
    return CollectorRegistry()


def collector_of(*figures):
    """Return what collects these of a queue space that is not open."""
    return ProgramCollector(ServedSpace(("/QUE", "QSPACE"), lambda: figures, lambda: None))


def collected(registry, *figures):
    registry.register(collector_of(*figures))
    return generate_latest(registry).decode()


class TestTheFigures:
    def test_all_that_is_counted_is_there(self, registry, clock):
        figures = Statistics("Q", workers=4, clock=clock)
        for _ in range(6):
            figures.began()
        figures.succeeded(0.004)
        figures.succeeded(2)
        figures.failed("no", 100, retries=True)
        figures.failed("no", 0, retries=False)
        figures.unavailable("down")
        figures.reply_dropped()
        figures.paused(5, "down")
        found = samples(collected(registry, figures))
        assert {key[0]: value for key, value in found.items() if key[1:] == ("QSPACE", "Q")} == {
            "tmqforward_calls_total": 6,
            "tmqforward_successes_total": 2,
            "tmqforward_failures_total": 2,
            "tmqforward_retries_total": 1,
            "tmqforward_refused_total": 1,
            "tmqforward_dropped_replies_total": 1,
            "tmqforward_calls_in_flight": 1,
            "tmqforward_workers": 4,
            "tmqforward_last_error_timestamp_seconds": clock.now() / MICROS,
            "tmqforward_paused_until_timestamp_seconds": clock.now() / MICROS + 5,
            "tmqforward_call_duration_seconds_count": 4,
            "tmqforward_call_duration_seconds_sum": 102.004,
        }
        buckets = {key[3]: value for key, value in found.items() if key[0] == "tmqforward_call_duration_seconds_bucket"}
        assert [buckets[bound] for bound in ("0.001", "0.0025", "0.005", "1.0", "2.5", "60.0", "+Inf")] == [
            *(1, 1, 2, 2, 3, 3, 4)
        ]
        assert found["tmqforward_info", __version__] == 1

    def test_of_a_queue_that_has_done_nothing_all_is_zero(self, registry, clock):
        found = samples(collected(registry, Statistics("Q", clock=clock)))
        assert {value for key, value in found.items() if key[1:] == ("QSPACE", "Q")} == {0.0, 1.0}
        assert found["tmqforward_workers", "QSPACE", "Q"] == 1

    def test_queues_are_told_apart_whatever_their_names(self, registry, clock):
        one, other = Statistics('a "queue"\\', clock=clock), Statistics("Grüße", clock=clock)
        other.began()
        found = samples(collected(registry, one, other))
        assert found["tmqforward_calls_total", "QSPACE", 'a "queue"\\'] == 0
        assert found["tmqforward_calls_total", "QSPACE", "Grüße"] == 1

    def test_the_names_follow_the_rules_of_prometheus(self, registry, clock):
        for family in text_string_to_metric_families(collected(registry, Statistics("Q", clock=clock))):
            if not family.name.startswith("tmqforward_"):
                continue
            assert re.fullmatch("tmqforward_[a-z_]+[a-z]", family.name)
            assert family.documentation.endswith("."), family.name
            assert (family.type == "counter") == any(each.name.endswith("_total") for each in family.samples)
            assert ("_seconds" in family.name) == ("timestamp" in family.name or "duration" in family.name)

    def test_they_fit_together_while_threads_count(self, registry):
        figures = Statistics("Q")
        registry.register(collector_of(figures))

        def work():
            for _ in range(500):
                figures.began()
                figures.succeeded(0.01)

        def scrape():
            for _ in range(20):
                found = samples(generate_latest(registry).decode())
                buckets = [value for key, value in found.items() if key[0].endswith("_bucket")]
                assert buckets == sorted(buckets)
                assert buckets[-1] == found["tmqforward_call_duration_seconds_count", "QSPACE", "Q"]

        assert Work(work, work, scrape).results() == [None] * 3


class TestTheAddress:
    @pytest.mark.parametrize(
        ("text", "host", "port"),
        [
            ("9464", LOOPBACK, 9464),
            ("0", LOOPBACK, 0),
            ("0.0.0.0:9464", "0.0.0.0", 9464),
            ("some.host-1:65535", "some.host-1", 65535),
            ("[::1]:9464", "::1", 9464),
        ],
    )
    def test_a_port_with_or_without_a_host(self, text, host, port):
        assert Address.parse(text) == Address(host, port)

    @pytest.mark.parametrize(
        "text", ["", "x", ":9464", "host:", "::1:9464", "65536", "-1", "9464 ", "h h:1", "²", "1e3"]
    )
    def test_anything_else_is_refused(self, text):
        with pytest.raises(InvalidArgumentError, match=re.escape(f"and not at {text!r}")):
            Address.parse(text)

    @pytest.mark.parametrize("text", ["127.0.0.1:9464", "[::1]:9464"])
    def test_it_is_shown_as_it_is_written(self, text):
        assert str(Address.parse(text)) == text


class TestServing:
    def test_a_port_that_is_taken_is_refused_and_free_again_at_the_end(self, free_port):
        with serving(free_port):
            with pytest.raises(OperatingSystemError, match=r"cannot be served at .*: Address already in use"):
                serving(free_port).__enter__()
            assert "tmqforward_info" in get(free_port)
        with pytest.raises(urllib.error.URLError):
            get(free_port)
        with serving(free_port):
            assert "tmqforward_info" in get(free_port)

    def test_a_host_that_is_not_this_one_is_refused(self, free_port):
        with pytest.raises(OperatingSystemError, match=re.escape("cannot be served at 192.0.2.1:")):
            serving(free_port, "192.0.2.1").__enter__()

    def test_without_the_package_it_is_told_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "prometheus_client", None)
        with pytest.raises(OperatingSystemError, match="which is not installed") as refused:
            serving(0).__enter__()
        assert refused.value.hint == "Install it with: pip install prometheus-client."
        with served(None, logger):
            pass


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def serving(port, host=LOOPBACK):
    return served(Address(host, port), logger, collector_of())


def get(port, host=LOOPBACK):
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=90) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return answer.read().decode()


class TestTheDaemon:
    @pytest.fixture
    def space(self, site):
        site.services(SERVICES, server=SERVER)
        return site.lay_out("STRING", QueueDefinition(name="FAILS", retries=1), "RPLYQ", "ERRQUE")

    def port(self, daemon):
        daemon.wait_until_logged("metrics are served at")
        return int(re.search(r"served at http://127\.0\.0\.1:(\d+)/metrics", daemon.log())[1])

    def test_what_a_daemon_does_can_be_scraped_until_it_stops(self, site, space):
        daemon = site.start("-q", "STRING,FAILS", "--metrics", "0")
        port = self.port(daemon)
        # The port answers before the queues are open: whoever looks at a daemon that cannot start finds that told.
        eventually(
            lambda: samples(get(port)).get(("tmqforward_calls_total", "QSPACE", "STRING")) == 0, "figures of its queues"
        )
        for text in ("one", "two"):
            space.enqueue("STRING", text)
        space.enqueue("FAILS", "poison")
        assert space.dequeue("ERRQUE", wait=60)
        found = eventually(
            lambda: (
                (seen := samples(get(port)))["tmqforward_successes_total", "QSPACE", "STRING"] == 2
                and seen["tmqforward_failures_total", "QSPACE", "FAILS"] == 2
                and seen
            ),
            "its figures",
        )
        assert found["tmqforward_retries_total", "QSPACE", "FAILS"] == 1
        assert found["tmqforward_call_duration_seconds_count", "QSPACE", "STRING"] == 2
        assert found["process_resident_memory_bytes",] > 1e6
        assert found["qmadmin_space_up", "QSPACE"] == 1
        assert found["qmadmin_queue_dequeued_messages_total", "QSPACE", "STRING"] == 2
        assert found["qmadmin_error_queue_messages", "QSPACE", "ERRQUE"] == 0
        daemon.stop()
        with pytest.raises(urllib.error.URLError):
            get(port)

    def test_the_settings_may_say_where_and_an_option_that_they_are_not_wanted(self, site, space, tmp_path):
        settings = tmp_path / "settings.toml"
        settings.write_text('[tmqforward]\nmetrics = "127.0.0.1:0"\n')
        daemon = site.start("-q", "STRING", QMADMIN_TOML=str(settings))
        assert "tmqforward_info" in get(self.port(daemon))
        quiet = site.start("-q", "STRING", "--metrics", "", QMADMIN_TOML=str(settings))
        assert "metrics" not in quiet.log()

    def test_a_port_that_is_taken_keeps_it_from_starting(self, site, space):
        with socket.socket() as taken:
            taken.bind((LOOPBACK, 0))
            taken.listen()
            port = taken.getsockname()[1]
            daemon = site.run("-q", "STRING", "--metrics", str(port))
        assert (daemon.process.returncode, daemon.said.splitlines()) == (
            2,
            [
                f"ERROR: metrics cannot be served at 127.0.0.1:{port}: Address already in use",
                "Name another port with --metrics.",
            ],
        )
        assert space.usage("STRING").dequeued == 0

    def test_an_address_that_has_no_meaning_is_a_mistake_of_usage(self, site, space):
        daemon = site.run("-q", "STRING", "--metrics", "all")
        assert (daemon.process.returncode, daemon.said.splitlines()[0]) == (
            2,
            "ERROR: metrics must be served at [HOST:]PORT, such as 9464 or 0.0.0.0:9464, and not at 'all'",
        )
