"""What a declaration has to be."""

import pytest

from qmadmin.shell.catalogue import Catalogue
from qmadmin.shell.declare import Group, Option, Positional
from qmadmin.shell.kinds import Words
from qmadmin.shell.notices import UsageError


def test_handler_must_take_what_is_declared():
    with pytest.raises(TypeError, match=r"declared \['a'\], function takes \['b'\]"):

        @Group("x").command("c", Positional("a", Words(), "An a."))
        def c(session, b):
            """Do it."""


def test_handler_must_have_a_docstring():
    with pytest.raises(TypeError, match="no docstring"):

        @Group("x").command("c")
        def c(session):
            pass


def test_option_cannot_be_declared_twice():
    with pytest.raises(TypeError, match="declared twice"):

        @Group("x").command("c", Option("-a", "a", "An a."), Option("-a", "b", "A b."))
        def c(session, a, b):
            """Do it."""


def test_argument_that_is_asked_for_cannot_follow_one_that_is_not():
    with pytest.raises(TypeError, match="without a prompt"):

        @Group("x").command("c", Positional("a", Words(), "An a."), Positional("b", Words(), "A b.", "B: "))
        def c(session, a, b):
            """Do it."""


def test_name_cannot_be_used_twice():
    group = Group("x")

    @group.command("create", short="c")
    def create(session):
        """Create it."""

    @group.command("c")
    def c(session):
        """Do it."""

    with pytest.raises(TypeError, match="c is a name of both create and c"):
        Catalogue([group])


def test_mistyped_command_gets_the_nearest_name_as_a_hint():
    with pytest.raises(UsageError, match="No such command: qcraete") as refused:
        Catalogue().find("qcraete Q1")
    assert refused.value.notice.hint.startswith("Did you mean qcreate?")


@pytest.mark.parametrize("line", ["qcre", "Q", "QOPEN", "qsp", "xyzzy", "1"])
def test_other_beginnings_of_names_are_no_abbreviations(line):
    with pytest.raises(UsageError, match="No such command"):
        Catalogue().find(line)
