"""The texts of statements, as an installed package has them."""

from __future__ import annotations

import make_texts
import pytest


@pytest.fixture(scope="session")
def compiled_texts() -> None:
    """Compile the texts of the statements as they are in the sources now."""
    make_texts.make()
