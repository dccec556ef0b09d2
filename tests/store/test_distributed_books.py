"""Transactions over two volumes beside plain lists: atomic, nothing lost, nothing doubled, and the counters right.

Several coordinators, which are real processes, commit, roll back, suspend and resume, stand still in the middle of a
commit, go on or are killed there, or anywhere else; administrators end what they left, or what they still work on.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.fix_postgres import forget_schema, login_of
from tests.store.distributed_machine import TwoVolumesMachine


class OnServerMachine(TwoVolumesMachine):
    """The same with schemas of a server of PostgreSQL."""

    kinds = "file-postgres"
    urls: Iterator[str]

    def url(self) -> str:
        return next(self.urls)

    def teardown(self) -> None:
        super().teardown()
        for config in set(self.pair.configs):
            if "://" in config:
                forget_schema(config)


def whole_of(machine: type[TwoVolumesMachine], kinds: str, examples: int) -> Any:
    """Return the test case of a machine on such kinds, with so many examples, or ten times as many for the whole."""
    case = type(machine.__name__, (machine,), {"kinds": kinds}).TestCase  # type: ignore[attr-defined]
    is_whole = os.environ.get("QM_TEST_MATRIX") == "all"
    case.settings = settings(
        max_examples=10 * examples if is_whole else examples,
        stateful_step_count=30 if is_whole else 20,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        # The processes work side by side, so that a failure need not come again in the same steps.
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
    )
    return case


# A loaded machine takes four times as long as one at rest.
_PATIENCE = pytest.mark.timeout(900)
TestTwoFiles = _PATIENCE(whole_of(TwoVolumesMachine, "file-file", 3))
TestTwoVolumes = pytest.mark.slow(_PATIENCE(whole_of(TwoVolumesMachine, "volumes-file", 3)))


@pytest.fixture
def _in_schemas_of_their_own(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in login_of(database_url).items():
        monkeypatch.setenv(name, value)
    urls = (f"{database_url}_{at}" for at in itertools.count())
    monkeypatch.setattr(OnServerMachine, "urls", urls, raising=False)


@_PATIENCE
@pytest.mark.slow
@pytest.mark.usefixtures("_in_schemas_of_their_own")
class TestAFileAndASchema(whole_of(OnServerMachine, "file-postgres", 2)):  # type: ignore[misc]
    pass


@_PATIENCE
@pytest.mark.slow
@pytest.mark.usefixtures("_in_schemas_of_their_own")
class TestTwoSchemas(whole_of(OnServerMachine, "postgres-postgres", 2)):  # type: ignore[misc]
    pass
