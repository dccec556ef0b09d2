"""The manual pages."""

import re
import shutil
import subprocess

import pytest

from qmadmin.shell import manpage
from qmcore.errors import QueueError
from tests.fix_shell import ROOT

PAGES = ["qmadmin.1", "qmdiag.7", "qmadmin-queue.7"]


@pytest.mark.parametrize("name", QueueError.by_name)
def test_diagnostic_is_explained(name):
    error = QueueError.by_name[name]
    assert f"\\fB{name}\\fR (\\-{-error.number})\n" in manpage.diagnostics()
    assert error.__doc__


def test_template_must_have_each_part_once():
    assert manpage.filled('a\n.\\" @X@\nb\n', {"X": "x\n"}) == "a\nx\nb\n"
    for wrong in ("", '.\\" @X@\n.\\" @X@\n'):
        with pytest.raises(ValueError, match="@X@"):
            manpage.filled(wrong, {"X": "x"})


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
@pytest.mark.parametrize("name", PAGES)
def test_page_is_set_without_a_complaint_and_within_80_columns(name):
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-P-c", "-ww", "-rLL=80n", ROOT / "man" / name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    text = re.sub(r".\x08", "", done.stdout)
    assert max(map(len, text.splitlines())) <= 80
    assert "\\f" not in text
