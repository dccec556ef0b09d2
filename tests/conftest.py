"""Settings of all tests. The fixtures are in the fix_*.py files beside this one."""

import os
from pathlib import Path

import hypothesis

pytest_plugins = [f"tests.{path.stem}" for path in sorted(Path(__file__).parent.glob("fix_*.py"))]

# An example may wait for the disk, which says nothing about the code.
hypothesis.settings.register_profile("qmadmin", deadline=None)
hypothesis.settings.load_profile("qmadmin")

# What the caller's shell is set up for is none of the tests' business.
for name in ("QMCONFIG", "QM_SHM_DIR", "ULOGPFX"):
    os.environ.pop(name, None)
os.environ["QMADMIN_TOML"] = os.devnull
