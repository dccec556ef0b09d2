"""What a stranger has: a fresh clone, and a shell without our virtual environment."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
UNREACHABLE = re.compile(r"NewConnectionError|NameResolutionError|ConnectTimeout|no package index", re.IGNORECASE)


def run_as_stranger(*command, cwd, **settings):
    """Run a command as a stranger's shell would: without our virtual environment."""
    ours = ("PYTHON", "PYTHONPATH", "PYTHONHOME", "QM_VENV", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment["PATH"] = os.pathsep.join(
        entry for entry in environment["PATH"].split(os.pathsep) if Path(entry) != Path(sys.executable).parent
    )
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment | settings,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    said = done.stdout + done.stderr
    if done.returncode and UNREACHABLE.search(said) and not os.environ.get("CI"):
        pytest.skip("no package index can be reached from here")
    assert done.returncode == 0, said
    return done


@pytest.fixture
def clone(tmp_path):
    """Return a directory with just those files that a clone has, or will have once all is committed."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    # The checkout may belong to somebody else than the one who runs the tests.
    settings = tmp_path / "gitconfig"
    settings.write_text("[safe]\n\tdirectory = *\n")
    listed = run_as_stranger(
        "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT, GIT_CONFIG_GLOBAL=str(settings)
    )
    copy = tmp_path / "a clone"
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy
