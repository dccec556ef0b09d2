"""A rule that stands where the engine builds what it asks of a store holds for every way in."""

import pytest

from qmadmin.atmi import TPException
from qmadmin.mib import MibError
from qmcore.errors import QueueError
from tests.fix_store import Store, device_path, maker_of_devices
from tests.ways import planting
from tests.ways.transitions import ARRIVE
from tests.ways.ways import WAYS, RefusedError, Scene

CASES = [(way, kind) for way in WAYS for kind in way.stores]
# The forwarder plants in its own process.
ARRIVALS = [case for case in CASES if case[0].transition is ARRIVE and case[0].name != "reply_of_the_forwarder"]


@pytest.fixture
def scene(request, tmp_path, clock, start):
    kind = request.getfixturevalue("kind")
    made = Store(kind, device_path(kind, request, tmp_path), clock, maker_of_devices(kind, request))
    yield Scene(made, tmp_path, start)
    made.close()


@pytest.fixture
def planted():
    taken_away = []
    yield lambda rule: taken_away.append(planting.plant(rule))
    for take_away in taken_away:
        take_away()


def is_refused(steps):
    """Take the last step of a way; return whether the planted rule has refused it."""
    try:
        next(steps, None)
    except (QueueError, TPException, MibError, RefusedError) as error:
        if planting.WORDS not in f"{error} {getattr(error, 'message', '')}":
            raise
        return True
    return False


@pytest.mark.matrix(apart=True)
@pytest.mark.parametrize(("way", "kind"), CASES, ids=[f"{way.name}-{kind}" for way, kind in CASES])
def test_a_rule_holds_for_every_way(scene, planted, way, kind):
    del kind  # The scene is of it.
    steps = way.steps(scene)
    next(steps)
    planted(planting.refusing(way.transition, "Q"))
    assert is_refused(steps)


@pytest.mark.matrix(apart=True)
@pytest.mark.parametrize(("way", "kind"), ARRIVALS, ids=[f"{way.name}-{kind}" for way, kind in ARRIVALS])
def test_a_rule_about_each_message_holds_for_every_way_by_which_one_arrives(scene, way, kind, request):
    del kind  # The scene is of it.
    steps = way.steps(scene)
    next(steps)
    request.addfinalizer(planting.plant_on_messages(planting.refusing_larger(0, "Q")))
    assert is_refused(steps)


def test_each_way_has_a_name_of_its_own():
    assert len({way.name for way in WAYS}) == len(WAYS)
