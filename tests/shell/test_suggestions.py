"""What may have been meant by a name that does not exist."""

import pytest

from qmadmin.shell.notices import nearest


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("qopne QSPACE", "Did you mean qopen? help lists the commands."),
        ("QINFO", "Did you mean qinfo? help lists the commands."),
        ("xyzzy", "help lists the commands."),
        ("qdestroy -P STRING", "Did you mean -p? Usage: qdestroy"),
        ("qdestroy -Y STRING", "Did you mean -y? Usage: qdestroy"),
        ("qdestroy --yes STRING", "Did you mean -y? Usage: qdestroy"),
        ("qdestroy --forse STRING", "Did you mean -f? Usage: qdestroy"),
        ("qdestroy --dry-run STRING", "Did you mean -n? Usage: qdestroy"),
        ("qdestroy -x STRING", "  Usage: qdestroy"),
        ("qset STRNG", "Did you mean STRING? List the queues with qinfo"),
        ("qset string", "Did you mean STRING? List the queues with qinfo"),
        ("qinfo eerq", "Did you mean errq? List the queues with qinfo"),
        ("qset nothing", "  List the queues with qinfo"),
        ("qopen QSPCE", "Did you mean QSPACE? List the queue spaces with qspacelist"),
    ],
)
def test_hint_names_what_is_written_nearly_so(laid_out, line, hint):
    assert hint in laid_out.type(f"qopen QSPACE\n{line}\n").err


def test_nothing_is_suggested_in_place_of_the_very_name():
    assert nearest("STRING", ["STRING", "STRANG"]) == ""


def test_nothing_is_suggested_where_no_device_is(shell):
    assert "Did you mean" not in shell.type("qopen QSPACE\n").err
