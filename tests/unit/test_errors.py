"""The diagnostics: names and numbers as in the manual, sentences from facts, and a way through pickle."""

import pickle

import pytest

from qmcore import errors
from qmcore.errors import (
    AbortedError,
    Alternative,
    InvalidArgumentError,
    NoSpaceError,
    QueueError,
    Resource,
    in_other_words,
    may_pass,
)

MANUAL = {
    "QMEINVAL": -1,
    "QMEBADRMID": -2,
    "QMENOTOPEN": -3,
    "QMETRAN": -4,
    "QMEBADMSGID": -5,
    "QMESYSTEM": -6,
    "QMEOS": -7,
    "QMEABORTED": -8,
    "QMEPROTO": -9,
    "QMEBADQUEUE": -10,
    "QMENOMSG": -11,
    "QMEINUSE": -12,
    "QMENOSPACE": -13,
    "QMERELEASE": -14,
    "QMEINVHANDLE": -15,
    "QMESHARE": -16,
}
OUR_OWN = {"QMEUNKNOWN": -101, "QMENORECIPIENT": -102}


def sample(kind):
    """Return an error of the class, as its users make it."""
    if kind is NoSpaceError:
        return NoSpaceError("queue space 'S'", Resource.PAGES, used=9, limit=10, wanted=3)
    return kind("queue 'Q' is odd", hint="Even it out.", queue="Q", catalogue=1205)


ALL = sorted(QueueError.by_name.values(), key=lambda kind: -kind.number)


def test_every_diagnostic_of_the_manual_has_a_class_with_its_number():
    assert {name: kind.number for name, kind in QueueError.by_name.items()} == MANUAL | OUR_OWN


def test_a_name_is_registered_once():
    with pytest.raises(TypeError, match="QMEINVAL is declared twice"):
        type("Twin", (QueueError,), {}, name="QMEINVAL", number=-99)
    assert errors.QueueError.by_name["QMEINVAL"] is InvalidArgumentError


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
class TestEach:
    def test_it_says_what_it_means(self, kind):
        assert kind.__doc__
        assert kind.__doc__.strip().endswith(".")

    def test_its_message_is_one_line_without_a_full_stop(self, kind):
        error = sample(kind)
        assert str(error) == error.message
        assert "\n" not in error.message
        assert not error.message.endswith(".")
        assert error.hint.endswith(".")

    def test_it_never_repeats_a_password(self, kind):
        if kind is not NoSpaceError:
            error = kind("'postgresql://me:geheim@db/x' is odd", hint="Mend postgresql://me:geheim@db/x first.")
            assert str(error) == error.message == "'postgresql://***@db/x' is odd"
            assert error.hint == "Mend postgresql://***@db/x first."

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_it_comes_through_pickle_with_everything(self, kind, protocol):
        error = sample(kind)
        error.unreachable, error.alternative = True, Alternative.AGAIN
        back = pickle.loads(pickle.dumps(error, protocol))
        assert type(back) is kind
        assert str(back) == error.message
        assert vars(back) == vars(error)
        assert (back.name, back.number) == (kind.name, kind.number)


def test_what_is_said_in_other_words_is_the_same_error():
    error = AbortedError("it ended", hint="Begin again.", of_the_store=True, unreachable=True, space="S")
    told = in_other_words(error, message="the act ended on postgresql://me:geheim@db/x")
    assert str(told) == told.message == "the act ended on postgresql://***@db/x"
    assert (told.hint, told.of_the_store, told.unreachable, may_pass(told)) == ("Begin again.", True, True, True)
    assert (str(error), in_other_words(error, hint="Wait.").hint, told.facts) == ("it ended", "Wait.", {"space": "S"})


def test_a_special_case_is_the_diagnostic_that_it_is_derived_from():
    special = type("Special", (AbortedError,), {})
    assert (special.name, special.number) == ("QMEABORTED", -8)
    assert QueueError.by_name["QMEABORTED"] is AbortedError


@pytest.mark.parametrize("resource", Resource)
def test_running_out_names_the_resource_how_much_is_used_and_the_limit(resource):
    error = NoSpaceError("queue space 'S'", resource, used=9, limit=10, wanted=3)
    assert (error.resource, error.used, error.limit, error.facts["wanted"]) == (resource, 9, 10, 3)
    assert f"9 of 10 {resource.value}" in error.message
    assert error.hint
    assert pickle.loads(pickle.dumps(error)).resource is resource


def test_every_resource_has_its_own_advice():
    hints = {NoSpaceError("x", resource, used=1, limit=1).hint for resource in Resource}
    assert len(hints) == len(Resource)
