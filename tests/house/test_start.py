"""Starting costs little: the big libraries load only where they are needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"alembic", "asyncio", "prompt_toolkit", "rich", "sqlalchemy"}

OF_OTHER_COMMANDS = {"qmadmin.monitoring.flow", "qmcore.attached", "qmcore.condition_parser", "qmstorage.questions"}

STARTS = {
    "import qmadmin": "import qmadmin",
    "a capacity command": "import qmadmin.capacity.command_runner",
    "qmadmin --version": """
import sys
from qmadmin.program import main
sys.argv = ["qmadmin", "--version"]
sys.exit(main())
""",
}


def run_and_list_imports(code):
    """Run the code in a new interpreter; return what it printed and the top-level packages that it imported."""
    paths = [ROOT, ROOT / "core", ROOT / "storage"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return done.stdout, {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


@pytest.mark.parametrize("start", STARTS)
def test_start_loads_no_big_library(start):
    _, imported = run_and_list_imports(STARTS[start])
    assert "qmadmin" in imported
    assert not imported & HEAVY


def test_version_is_printed():
    from qmadmin.version import __version__

    printed, _ = run_and_list_imports(STARTS["qmadmin --version"])
    assert __version__ in printed


def test_models_are_bodies_without_the_libraries_that_other_models_are_of(tmp_path):
    program = f"""
import dataclasses, qmadmin
@dataclasses.dataclass
class Order:
    sku: str
with qmadmin.create_device({str(tmp_path / "QUE")!r}, 1000) as device:
    limits = {{"pages": 500, **dict.fromkeys(("queues", "transactions", "processes", "messages"), 100)}}
    device.create_space(qmadmin.SpaceDefinition(name="S", ipc_key=40000, **limits))
    with device.open_space("S") as space:
        space.create_queue(qmadmin.QueueDefinition(name="Q"))
        space.enqueue("Q", Order("chair"))
        print(qmadmin.decode(space.dequeue("Q"), Order))
"""
    printed, imported = run_and_list_imports(program)
    assert printed == "Order(sku='chair')\n"
    assert not imported & {"msgspec", "pydantic"}


def test_what_processes_leave_to_each_other_is_packed_only_where_they_meet(tmp_path):
    made = f"create_device({str(tmp_path / 'QUE')!r}, 1000)"
    _, imported = run_and_list_imports(f"from qmadmin.opening import create_device\nwith {made}: pass")
    assert "sqlalchemy" in imported
    assert "msgpack" not in imported


def test_forwarder_loads_what_a_kind_of_service_needs_with_the_first_of_that_kind():
    kinds = "qmadmin.forwarder.program, qmadmin.forwarder.daemon, qmadmin.consumers.function_handler"
    _, imported = run_and_list_imports(f"import {kinds}, qmadmin.forwarder.command_service")
    assert "qmadmin" in imported
    assert not imported & {"asyncio", "urllib3"}


PROGRAMS = {
    "qmadmin -c lidl": ("qmadmin.program", ["{device}", "-c", "lidl"]),
    "tmqforward --status": ("qmadmin.forwarder.program", ["--status", "{device}", "SPACE"]),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_short_commands_load_no_big_library(program, compiled_texts, real_device):
    module, arguments = PROGRAMS[program]
    given = [argument.format(device=real_device.path) for argument in arguments]
    _, imported = run_and_list_imports(f"import {module}\n{module}.main({given!r})")
    assert "qmstorage" in imported
    # The driver of PostgreSQL imports asyncio for its own use.
    own = {"asyncio"} if real_device.kind == "postgresql" else set()
    assert not imported & (HEAVY - own)


def test_listing_the_devices_loads_nothing_that_only_other_commands_ask_for(tmp_path):
    device = str(tmp_path / "QUE")
    program = f"""
import sys
from qmadmin.opening import create_device
from qmadmin.program import main
create_device({device!r}, 1000).close()
assert main([{device!r}, "-c", "lidl"]) == 0
print(*({OF_OTHER_COMMANDS!r} & sys.modules.keys()))
"""
    printed, _ = run_and_list_imports(program)
    assert printed.splitlines()[-1] == ""
