"""spark-submit of the entry point, with the package as a zip."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from qmadmin.device import Device
from qmadmin.transfer.comparing import compare

SCRIPTS = Path(__file__).parents[2] / "scripts" / "spark"


def made(path: Path) -> Path:
    subprocess.run([sys.executable, str(SCRIPTS / "make_zip.py"), str(path)], check=True, timeout=240)
    return path


def test_the_zip_has_the_packages_with_their_data_and_is_the_same_each_time(tmp_path: Path):
    zipped = made(tmp_path / "one.zip")
    names = zipfile.ZipFile(zipped).namelist()
    assert {name.split("/")[0] for name in names} == {"qmadmin", "qmcore", "qmstorage"}
    assert "qmadmin/spark/conf/log4j2.properties" in names
    assert zipped.read_bytes() == made(tmp_path / "two.zip").read_bytes()


def test_the_zip_is_enough_to_run_the_program(tmp_path: Path):
    zipped = made(tmp_path / "qmadmin.zip")
    # Without what is installed of the package, but with all else.
    source = (
        "import sys; sys.meta_path = [f for f in sys.meta_path if '__editable__' not in getattr(f, '__name__', '')]"
    )
    source += f"; sys.path.insert(0, {str(zipped)!r}); import qmadmin; print(qmadmin.__file__)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = subprocess.run(
        [sys.executable, "-P", "-c", source],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert said.stdout.startswith(str(zipped)), said.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("java")
def test_a_queue_space_is_exported_by_spark_submit(file_device: Device, tmp_path: Path):
    import pyspark

    with file_device.open_space("SPACE") as space:
        space.enqueue_many("Q", [f"{number}".encode() for number in range(5_000)])
    archive = tmp_path / "archive"
    said = subprocess.run(
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            *("--master", "local[2]", "--driver-memory", "768m", "--py-files", str(made(tmp_path / "qmadmin.zip"))),
            *(str(SCRIPTS / "qmspark.py"), "export", "-q", file_device.config, str(archive)),
        ],
        env=os.environ
        | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert said.returncode == 0, said.stderr[-3000:]
    assert said.stdout == ""
    compared = compare(archive, file_device.config)
    assert (compared.messages, compared.differences) == (5_000, ())
