"""Fixtures of the ATMI face: a device for it, and a process that has joined it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import qmadmin
from qmadmin.atmi import TPException, tpabort, tpgetlev, tpinit, tpterm
from qmcore.order import OutOfOrder

QUEUES = ("STRING", "RPLYQ", "FAILQ", "errq")


@pytest.fixture(scope="session")
def atmi_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A device that is made once, and copied for each test, which is much quicker."""
    directory = tmp_path_factory.mktemp("atmi")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QM_SHM_DIR", str(directory))
        lay_out(directory / "QUE")
    return directory / "QUE"


@pytest.fixture
def atmi_device(atmi_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A device with the queue spaces QSPACE and OTHER. In the queue FREE messages may come out of order."""
    monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
    path = tmp_path / "QUE"
    shutil.copy(atmi_template, path)
    path.chmod(0o600)
    return path


def lay_out(path: Path) -> None:
    with qmadmin.create_device(path, 1000) as device:
        for key, name in enumerate(("QSPACE", "OTHER"), 230458):
            device.create_space(
                qmadmin.SpaceDefinition(
                    name=name,
                    ipc_key=key,
                    pages=100,
                    queues=9,
                    transactions=3,
                    processes=3,
                    messages=10,
                    memory=100_000,
                    actions=0,
                    error_queue="errq",
                )
            )
            with device.open_space(name) as space:
                for queue in QUEUES:
                    space.create_queue(qmadmin.QueueDefinition(name=queue))
                out_of_order = OutOfOrder.parse("top,msgid")
                space.create_queue(qmadmin.QueueDefinition(name="FREE", out_of_order=out_of_order))
                space.create_queue(qmadmin.QueueDefinition(name="SHORT", expiration=0))
                space.create_queue(qmadmin.QueueDefinition(name="MEMORY", delivery=qmadmin.Delivery.NONPERSIST))


@pytest.fixture
def joined(atmi_device: Path) -> Iterator[Path]:
    """This process has joined the device; waits outside of a transaction are short."""
    tpinit(atmi_device, timeout=0.05)
    yield atmi_device
    if tpgetlev():
        tpabort()
    tpterm()


def refused(call: object, *arguments: object, **options: object) -> TPException:
    """Return what a call raises."""
    assert callable(call)
    with pytest.raises(TPException) as caught:
        call(*arguments, **options)
    return caught.value
