"""Names that users rely on stay: one that goes breaks somebody, and one that comes is promised from then on."""

from tests.house.public_names import RECORDED, public_names


def test_the_names_that_users_rely_on_are_those_that_are_recorded():
    recorded, found = set(RECORDED.read_text().splitlines()), set(public_names())
    assert sorted(recorded - found) == [], "these are gone"
    assert sorted(found - recorded) == [], "these are new: python tests/house/public_names.py records them"
