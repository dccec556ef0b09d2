"""Each test is in the ring that its costs put it into; what the rings name is there."""

import re
from pathlib import Path

import pytest

from tests import rings

TESTS = Path(__file__).parents[1]


def test_each_test_of_this_run_is_in_one_ring(request):
    found = {
        item.nodeid: [mark.name for mark in item.iter_markers() if mark.name in rings.RINGS]
        for item in request.session.items
    }
    assert {name: marks for name, marks in found.items() if len(marks) != 1} == {}


def test_the_proof_comes_first_in_this_run(request):
    is_proof = [item.get_closest_marker(rings.PROOF) is not None for item in request.session.items]
    assert is_proof == sorted(is_proof, reverse=True)


def test_no_quick_test_of_this_run_needs_a_server(request):
    quick = [item for item in request.session.items if item.get_closest_marker(rings.QUICK)]
    assert [item.nodeid for item in quick if "postgres_server" in item.fixturenames] == []


@pytest.mark.parametrize("name", [*rings.FOLDERS, *rings.FILES])
def test_folders_and_files_that_have_a_ring_are_there(name):
    assert (TESTS / name).exists()


@pytest.mark.parametrize("name", rings.FIXTURES)
def test_fixtures_that_have_a_ring_are_there(name):
    made = rf"@pytest\.fixture.*?\ndef {name}\("
    assert any(re.search(made, path.read_text(), re.DOTALL) for path in TESTS.glob("fix_*.py"))
