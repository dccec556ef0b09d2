"""A volume that is missing takes its queue spaces away and no others, and what looks at all of them says so."""

import pytest

from qmadmin import create_device, mib
from qmadmin.transfer.exporting import ExportOptions, export
from qmadmin.transfer.moving import move
from qmadmin.transfer.selecting import ArchiveSelection
from qmcore.errors import Alternative, BadResourceError

BACKUPS = "a device on PostgreSQL is backed up with the tools of the server"


def options(*spaces, **how):
    return ExportOptions(selection=ArchiveSelection(spaces=spaces or ("*",)), **how)


@pytest.fixture
def lacking(place):
    """The device, whose second volume with the queue space FAR is away."""
    place.move(place.second, place.away)
    return place.store.another()


def lacks(place):
    return rf"'.*{place.second}' with queue space FAR \(there is no device '{place.second}'"


def test_a_backup_is_refused_unless_it_is_to_leave_out_what_is_missing(place, lacking, tmp_path):
    if place.is_postgres:
        pytest.skip(BACKUPS)
    with pytest.raises(BadResourceError, match=f"the backup would lack {lacks(place)}") as refusal:
        lacking.backup(tmp_path / "backup")
    assert refusal.value.alternative is Alternative.LEAVE_OUT
    assert not (tmp_path / "backup").exists()
    report = lacking.backup(tmp_path / "backup", leave_out_missing=True)
    assert [volume.path for volume in report.volumes] == [lacking.path]
    (fault,) = report.faults
    assert fault.startswith(f"'{place.second}' with queue space FAR cannot be opened: ")
    assert fault.endswith("; it is not in the backup")


def test_an_export_of_everything_is_refused_unless_it_is_to_leave_out_what_is_missing(place, lacking, tmp_path):
    for dry_run in (True, False):
        with pytest.raises(BadResourceError, match=f"the archive would lack {lacks(place)}") as refusal:
            export(lacking.config, tmp_path / "archive", dry_run=dry_run)
        assert refusal.value.alternative is Alternative.LEAVE_OUT
    assert not (tmp_path / "archive").exists()
    done = export(lacking.config, tmp_path / "archive", options(leave_out_missing=True))
    assert [space.name for space in done.manifest.spaces] == ["NEAR"]
    assert [(volume.path, volume.spaces) for volume in done.missing] == [(place.second, ("FAR",))]


def test_an_export_needs_only_the_volumes_of_what_it_takes(lacking, tmp_path):
    done = export(lacking.config, tmp_path / "archive", options("N*"))
    assert [space.name for space in done.manifest.spaces] == ["NEAR"]
    assert done.missing == []


def test_an_export_of_what_is_missing_alone_says_that_it_is(place, lacking, tmp_path):
    for leave_out in (False, True):
        with pytest.raises(BadResourceError, match=f"all that is selected is missing: {lacks(place)}") as refusal:
            export(lacking.config, tmp_path / "archive", options("FAR", leave_out_missing=leave_out))
        assert refusal.value.alternative is None
    with pytest.raises(BadResourceError, match="has no queue space 'NONE'") as refusal:
        export(lacking.config, tmp_path / "archive", options("NONE"))
    assert refusal.value.hint == "It has 'FAR', 'NEAR'."
    assert not (tmp_path / "archive").exists()


def test_the_log_has_once_what_is_missing(lacking, place, caplog):
    for _ in range(3):
        assert [space.name for space in lacking.spaces()] == ["NEAR"]
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.getMessage().startswith(f"'{place.second}' with queue space FAR cannot be opened: ")


def test_a_mib_request_gets_what_is_missing_by_its_name_and_its_state(lacking, place):
    by_name = mib.get(lacking, "T_APPQSPACE", {"TA_APPQSPACENAME": "FAR"})
    assert [found["TA_VOLUME"] for found in by_name] == [place.second]
    assert mib.get(lacking, "T_APPQSPACE", {"TA_STATE": "UNAVAILABLE"}) == by_name
    told = []
    for keys, lines in (({"TA_APPQSPACENAME": "NEAR"}, 0), ({"TA_STATE": "INA"}, 0), ({}, 1)):
        told.clear()
        assert len(list(mib.stream(lacking, "T_APPQSPACE", keys, warn=told.append))) == 1 + lines
        assert len(told) == lines
    assert told[0].startswith(f"'{place.second}' with queue space FAR cannot be opened: ")
    assert "qspacedestroy -L" in told[0]


def test_nothing_is_stopped_for_a_move_that_would_lack_something(place, lacking, second_device, tmp_path):
    with pytest.raises(BadResourceError, match=f"the archive would lack {lacks(place)}"):
        move(lacking.config, second_device.config, tmp_path / "archive", exporting=options())
    with lacking.open_space("NEAR") as space:
        assert all(queue.enqueue_enabled and queue.dequeue_enabled for queue in space.queues())
    assert second_device.spaces() == []
    moved = move(lacking.config, second_device.config, tmp_path / "archive", exporting=options(leave_out_missing=True))
    assert (moved.removed.removed, moved.left) == (1, 0)
    assert [space.name for space in second_device.spaces()] == ["NEAR"]


@pytest.fixture
def second_device(tmp_path):
    with create_device(tmp_path / "DESTINATION", 2_000) as device:
        yield device
