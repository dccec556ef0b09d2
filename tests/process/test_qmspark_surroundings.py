"""qmspark on Spark where there is no network, and where the machine has a name that no host should have."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.fix_process import environment
from tests.fix_qmspark import PROGRAM

ALONE = """
import fcntl, os, socket, struct, sys

UP_AND_RUNNING, SET_FLAGS = 0x41, 0x8914
socket.sethostname("no_such.machine_")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh", b"lo", UP_AND_RUNNING))
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Gives the machine another name, and no way to others but to itself; then runs a program."""

UNSHARE = ["unshare", "--net", "--uts"]


@pytest.fixture
def unshared():
    """What to put before a command so that it has no network, and a host name of its own."""
    if (
        shutil.which("unshare") is None
        or subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("only who may make namespaces can take the network away from a program")
    return [*UNSHARE, sys.executable, "-c", ALONE]


@pytest.mark.slow
@pytest.mark.usefixtures("as_users_start_it")
def test_spark_works_without_a_network_on_a_machine_with_an_odd_name(qmspark, unshared):
    there = qmspark.empty_device()
    settings = environment(HOSTNAME="no_such.machine_")
    for arguments in (
        ("export", "--master", "local[1]", qmspark.device, "archive"),
        ("import", "--master", "local[1]", "--start", "archive", there),
    ):
        ran = subprocess.run(
            [*unshared, *PROGRAM, *arguments],
            cwd=qmspark.directory,
            env=settings,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr == ""
    assert [m.msgid for m in qmspark.messages(there)] == [m.msgid for m in qmspark.messages(qmspark.device)]
    assert os.uname().nodename != "no_such.machine_"
