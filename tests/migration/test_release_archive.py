"""The archive that release 0.1.0 wrote is read for ever."""

import subprocess
import sys
from pathlib import Path

import qmadmin

ARCHIVE = Path(__file__).with_name("release-0.1.0") / "archive"


def test_archive_of_the_first_release_is_imported_with_all_its_messages(tmp_path):
    qmadmin.create_device(tmp_path / "QUE", 3_000).close()
    command = [sys.executable, "-m", "qmadmin.spark.program", "import", ARCHIVE, tmp_path / "QUE"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    with qmadmin.open_device(tmp_path / "QUE") as device:
        found = {
            (space.name, queue.name): usage.messages
            for space in device.spaces()
            for queue, usage in device.queue_usages(space.name)
        }
        assert found == {
            ("QS", "ERRQ"): 1,
            ("QS", "GROUPS"): 2,
            ("QS", "Q"): 6,
            ("QS", "STOPPED"): 0,
            ("OTHER", "Q2"): 1,
        }
        with device.open_space("QS") as space:
            (moved,) = space.messages("ERRQ")
            assert (moved.origin.queue, moved.origin.reason) == ("Q", qmadmin.Reason.RETRIES)
            bodies = [space.content(listed).body for listed in space.messages("Q")]
    assert sorted(bodies, key=len) == [b"low", b"text", b"later", b"expires", b"in memory", bytes(1_100_000)]
