"""What the page of qmspark says of its options is what the commands declare."""

import re

import click
import pytest

from qmadmin.manual import bold, prose
from qmadmin.options import Option
from qmadmin.spark import program
from tests.fix_shell import ROOT
from tests.manual.test_pages import section

PAGE = ROOT / "man" / "qmspark.1"
CHAPTERS = {program.export: "EXPORT", program.load: "IMPORT", program.verify: "VERIFY"}
SHARED = "OPTIONS OF ALL COMMANDS"


@pytest.mark.parametrize("command", CHAPTERS, ids=lambda command: command.name)
def test_each_option_stands_once_in_the_chapter_of_its_command_or_among_the_shared_ones(command):
    chapter = section(PAGE, CHAPTERS[command])
    for option in command.params:
        if not isinstance(option, click.Option):
            continue
        term = ", ".join(bold(name) for name in option.opts)
        found = [
            text for text in (chapter, section(PAGE, SHARED)) if re.search(rf"^{re.escape(term)}\b", text, re.MULTILINE)
        ]
        assert len(found) == 1, option.opts
        if isinstance(option, Option):
            assert prose(option.summary) in found[0]
            assert prose(option.more) in found[0]


def test_options_of_show_are_among_the_shared_ones():
    shared = section(PAGE, SHARED)
    assert [option.opts for option in program.show.params if bold(option.opts[0]) not in shared] == [["archive"]]


def test_arguments_are_in_the_synopsis():
    synopsis = section(PAGE, "SYNOPSIS")
    for name in ("export", "import", "verify", "show"):
        assert f".B qmspark {name}\n" in synopsis
