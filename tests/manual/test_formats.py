"""The section FORMATS of qmadmin(1) has the keys that the commands write for programs."""

import json
import re

import pytest

from qmadmin.shell.catalogue import Catalogue
from tests.fix_shell import ROOT

SCRIPT = """\
format json
crdl {0}/more 0 100
chdl 1 {0}/moved
dsdl -y 1
crdl {0}/more 0 100
lidl
livtoc
qcommands
qspacecreate OTHER 54321 20 3 3 3 12 errq n 16
qspacelist OTHER
qspacechange OTHER 54321 3 3 12 errq n 16
qaddext OTHER 8
ipcrm -y OTHER
qspacedestroy -y OTHER
qsize 200 3 3 3 12
qopen QSPACE
qclose
qopen QSPACE
echo off
verbose off
paginate off
ipcs QSPACE
qcreate Q fifo none 0 0 100% 0% ""
qchange Q none 0 0 100% 0% ""
qset Q
qput Q x
qscan -p 50
qlist
qinfo Q
qpeek Q
qchangeprio -y 50
qchangetime -n +0
qchangetime -y +0
qchangetime -y 9999-12-31T23:59:59Z
qunpark -y Q
qchangeexptime -y none
qchangequeue -y STRING
qrequeue -y STRING
qget Q
qput Q x
qdeletemsg -y
qput Q x
qpurge -y Q
qstop Q
qstart Q
qtop
qstat
qdestroy -y Q
qcheck
qaudit
qbackup {0}/backup
qrestore -y {0}/backup {0}/restored
"""


@pytest.fixture(scope="module")
def documented():
    """Return the keys of each command as the page has them."""
    page = (ROOT / "man/qmadmin.1").read_text(encoding="utf-8")
    section = page.partition("These are the keys of the rows:")[2].partition(".SH MODES")[0]
    names = [command.name for command in Catalogue().commands]
    found = {}
    for block in section.split(".TP\n")[1:]:
        head, _, text = block.partition("\n")
        keys = re.findall(r"[a-z_]+", re.sub(r"\(.*?\)", "", re.split(r"[;.]", text)[0]))
        found |= dict.fromkeys((name for name in re.findall(r"\w+", head) if name in names), keys)
    return found


def test_keys_of_every_row_are_those_of_the_page(laid_out, documented):
    ran = laid_out.run(SCRIPT.format(laid_out.directory))
    written = {}
    for line in ran.out.splitlines()[1:]:
        document = json.loads(line)
        if document["rows"] and list(document["rows"][0]) != ["dry_run"]:
            written[document["command"]] = list(document["rows"][0])
    written["format"] = ["format"]
    left = {"qprinttrans", "watch"}
    assert {name: keys for name, keys in documented.items() if name not in left} == written


def test_a_row_of_a_transaction_has_the_keys_of_the_page(laid_out, documented):
    ran = laid_out.run("format csv\nqopen QSPACE\nqprinttrans\n")
    assert ran.out.splitlines()[-1].split(",") == documented["qprinttrans"]
