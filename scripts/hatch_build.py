"""What is done when a package is built, or a checkout installed: the texts of the statements are compiled."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Texts(BuildHookInterface[Any]):
    """Compiles the texts of the statements before they are put into the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the files with the texts."""
        del version, build_data
        sys.path.insert(0, str(Path(self.root) / "scripts"))
        from make_texts import make

        make()
