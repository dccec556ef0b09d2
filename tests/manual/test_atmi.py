"""What the manual says of tpenqueue and tpdequeue is what the calls do."""

import inspect
import pickle
import re

import pytest

from qmadmin import manual
from qmadmin.atmi import calls, control, errno
from qmadmin.atmi.control import TPQCTL, dequeue_control, enqueue_control
from qmadmin.atmi.errno import Value
from qmadmin.space import QueueSpace
from qmcore.errors import BadMessageIdError, InvalidArgumentError
from qmcore.message import Message
from tests.fix_shell import ROOT
from tests.manual.test_pages import section

METHODS = {"enqueue": QueueSpace.enqueue, "dequeue": QueueSpace.dequeue}
CONTROL = {name: getattr(control, name) for name in control.__all__ if re.match(r"TPQ(?!CTL|QOS)", name)}
QUEUES = {"replyqueue": "R", "failurequeue": "F", "delivery_qos": 2, "reply_qos": 2, "msgid": "0" * 32}


def terms(text):
    return re.findall(r"^\.TP.*\n(.*)", text, re.MULTILINE)


@pytest.mark.parametrize("name", CONTROL)
def test_a_control_flag_is_described_for_the_calls_that_know_it(name):
    flag = CONTROL[name]
    if flag.enqueue:
        enqueue_control(TPQCTL(flags=flag, **QUEUES), "CARRAY", client="", appkey=0)
    else:
        with pytest.raises(InvalidArgumentError, match="tpenqueue has no control flags"):
            enqueue_control(TPQCTL(flags=flag, **QUEUES), "CARRAY", client="", appkey=0)
    asked = TPQCTL(flags=flag, **QUEUES)
    try:
        dequeue_control(asked)
    except BadMessageIdError:
        pytest.fail("the identifier is of the right form")
    assert bool(asked.flags & flag) is bool(flag.dequeue)


@pytest.mark.parametrize("call", METHODS)
def test_a_flag_of_a_call_is_described_if_the_call_takes_it(call):
    for name in ("TPNOTRAN", "TPNOBLOCK", "TPNOTIME", "TPSIGRSTRT", "TPNOCHANGE"):
        flag = getattr(calls, name)
        taken = call == "dequeue" or name != "TPNOCHANGE"
        assert bool(getattr(flag, call)) is taken
        assert (f"\\fB{name}\\fR ({flag:#05x})" in manual.call_flags(call)) is taken


@pytest.mark.parametrize("call", METHODS)
def test_every_argument_of_the_method_is_described_and_there_are_no_others(call):
    parameters = inspect.signature(METHODS[call]).parameters
    described = {name for term in terms(manual.arguments(METHODS[call])) for name in re.findall(r"\\fI(\w+)", term)}
    assert described == set(parameters) - {"self", "queue"}
    shown = re.findall(r"\\fI(\w+)\\fR=?", manual.synopsis(METHODS[call]))
    assert shown == list(parameters)[1:]


@pytest.mark.parametrize("call", METHODS)
def test_what_does_the_same_in_python_is_an_argument_of_the_method(call):
    text = manual.call_flags(call) + manual.control_flags(call)
    named = set(re.findall(r"In Python: \\fB(\w+)", text))
    assert named
    assert named <= set(inspect.signature(METHODS[call]).parameters)


@pytest.mark.parametrize("call", METHODS)
def test_every_name_in_the_description_of_a_flag_is_a_field(call):
    for value in CONTROL.values():
        assert set(re.findall(r"`(\w+)`", getattr(value, call))) <= set(TPQCTL.__dataclass_fields__)


def test_fields_are_described_where_they_are_used():
    assert {"\\fBdeq_time\\fR (seconds; absolute: since 1970, UTC)", "\\fBpriority\\fR (1 to 100)"} <= set(
        terms(manual.fields("enqueue"))
    )
    assert "cltid" not in manual.fields("enqueue")
    assert "\\fBcltid\\fR (output)" in terms(manual.fields("dequeue"))
    assert "deq_time" not in manual.fields("dequeue")


@pytest.mark.parametrize("call", METHODS)
def test_errors_are_listed_by_name_and_number_each_number_once(call):
    errnos, diagnostics = terms(manual.errnos(call)), terms(manual.diagnostics(call))
    assert "\\fBTPEDIAGNOSTIC\\fR (24)" in errnos
    assert "\\fBQMEABORTED\\fR (\\-8)" in diagnostics
    assert ("\\fBTPEOTYPE\\fR (18)" in errnos) is (call == "dequeue")
    assert ("\\fBQMENOMSG\\fR (\\-11)" in diagnostics) is (call == "dequeue")
    for found in (errnos, diagnostics):
        numbers = [re.search(r"\(.*\)", term)[0] for term in found]
        assert len(set(numbers)) == len(numbers)


def test_a_value_is_its_number_in_everything():
    value = control.TPQCORRID
    assert isinstance(value, Value)
    assert (value, repr(value), hash(value), value | 2) == (1, "1", hash(1), 3)
    assert type(value | 2) is int
    again = pickle.loads(pickle.dumps(value))
    assert (again, again.enqueue) == (value, value.enqueue)
    assert errno.QMENOMSG == -11


def bold_words(text):
    return re.findall(r"^\.BR? (\w+)", text, re.MULTILINE)


def test_attributes_and_methods_that_the_pages_name_are_there():
    told = section(ROOT / "man" / "tpdequeue.3", "PYTHON")
    attributes, rest = told.partition("A message has\n")[2].split("Calls inside\n")
    assert len(bold_words(attributes)) > 10
    assert [name for name in bold_words(attributes) if not hasattr(Message, name)] == []
    others = rest.rpartition(".PP\n")[2]
    others += section(ROOT / "man" / "tpenqueue.3", "PYTHON").rpartition(".PP\n")[2]
    assert len(bold_words(others)) == 7
    assert [name for name in bold_words(others) if not hasattr(QueueSpace, name)] == []


@pytest.mark.parametrize("call", METHODS)
def test_what_has_to_be_named_stands_behind_a_star(call):
    """Each call that a page shows with its arguments is as the function is."""
    page = (ROOT / f"man/tp{call}.3").read_text()
    functions = {name: getattr(calls, name) for name in calls.__all__ if inspect.isfunction(getattr(calls, name))}
    functions[f"space.{call}"] = METHODS[call]
    shown = dict(re.findall(r"^\\fB([\w.]+)\\fR\((.*\\fI.*)\)$", page, re.MULTILINE))
    assert {"tpinit", f"tp{call}", f"space.{call}"} <= set(shown)
    for name, text in shown.items():
        parameters = [each for each in inspect.signature(functions[name]).parameters.values() if each.name != "self"]
        named = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
        expected = [each.name for each in parameters if each.name not in named] + ["*"] * bool(named) + named
        assert re.findall(r"(?<=\\fI)\w+|\*", text) == expected, name
