"""What the pages say of options and settings is what the programs have."""

import json
import re

import click
import pytest

from qmadmin import manual
from qmadmin.archive.columns import COLUMNS
from qmadmin.console.formats import Format
from qmadmin.consumers.handling import keys_of
from qmadmin.forwarder import command_service, http_service
from qmadmin.forwarder.descriptions import KINDS
from qmadmin.forwarder.program import tmqforward
from qmadmin.manual import bold, escaped, programs, prose
from qmadmin.mib import CLASSES, Code, Flags, describe
from qmadmin.monitoring.consumer_metrics import CONSUMER, FORWARDER
from qmadmin.monitoring.prometheus import ProgramCollector
from qmadmin.options import Option
from qmadmin.program import qmadmin
from qmadmin.settings import SECTIONS, ForwarderSettings, LogSettings, SettingKind, ShellSettings
from qmadmin.ulog import JSON_KEYS
from tests.fix_shell import ROOT
from tests.manual.test_pages import section

ALL = [setting for kind in SECTIONS.values() for setting in kind.declared().values()]


def entry(text, term):
    """Return what a list says of a term."""
    found = re.search(rf"^\.TP.*\n{re.escape(term)}.*\n((?:(?!\.TP).*\n)*)", text, re.MULTILINE)
    assert found, term
    return found[1]


@pytest.mark.parametrize("option", [found for found in tmqforward.params if isinstance(found, click.Option)])
def test_option_is_in_the_page_as_it_is_declared(option):
    page = ROOT / "man" / "tmqforward.8"
    said = entry(section(page, "OPTIONS"), ", ".join(bold(name) for name in option.opts))
    assert said
    if isinstance(option, Option):
        assert prose(option.summary) in said
        assert prose(option.more) in said
    # The long names of the two that every program has stand there.
    assert escaped(option.opts[-1]) in section(page, "SYNOPSIS")


@pytest.mark.parametrize("option", [found for found in qmadmin.params if isinstance(found, click.Option)])
def test_option_of_the_shell_is_in_its_page(option):
    page = ROOT / "man" / "qmadmin.1"
    said = re.sub(r"\\f[BIR]", "", section(page, "OPTIONS")).replace("\\-", "-")
    for name in option.opts:
        assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", said), name


def test_results_can_be_had_by_the_settings_in_each_format_that_the_shell_has():
    assert ShellSettings.format.choices == ("auto", *(form.value for form in Format))


def test_option_says_what_holds_without_it():
    said = programs.described(tmqforward)
    assert entry(said, bold("-t")).endswith(
        "Default: \\fBtrantime\\fR in [tmqforward] of \\fBqmadmin.toml\\fR(5), else 60.\n"
    )
    assert entry(said, bold("-s")).endswith(
        "Default: the value of \\fBQM_SERVICES\\fR,"
        " else \\fBservices\\fR in [tmqforward] of \\fBqmadmin.toml\\fR(5), else services.toml.\n"
    )
    assert "the value of \\fBQMCONFIG\\fR" in entry(said, "\\fIdevice\\fR")
    assert "Default" not in entry(said, bold("-e"))


def test_value_of_an_option_is_in_italics_and_small():
    assert "\\fB\\-q\\fR \\fIqueue\\fR[,\\fIqueue\\fR" in programs.described(tmqforward)
    assert "\n\\fB\\-e\\fR\n" in programs.described(tmqforward)


def test_help_tells_the_default_that_the_setting_declares():
    told = tmqforward.get_help(click.Context(tmqforward))
    assert f"[default: {ForwarderSettings.trantime.default}]" in " ".join(told.split())


@pytest.mark.parametrize("setting", ALL, ids=lambda setting: f"{setting.section}.{setting.key}")
def test_setting_is_in_the_page_with_what_it_may_be_its_default_and_its_variable(setting):
    said = programs.settings(setting.section)
    assert f"\n{bold(setting.key)} (" in said
    text = entry(said, bold(setting.key))
    assert prose(setting.help) in text
    assert f"The default is {prose(programs.default(setting))}.\n" in text
    assert (f"The environment variable {bold(setting.variable)} overrides it." in text) is bool(setting.variable)
    if setting.kind is SettingKind.CHOICE:
        assert f"(one of {', '.join(setting.choices)})" in said
    if setting.kind is SettingKind.NUMBER:
        assert f"(whole number from {setting.low} to {setting.high})" in said


def test_default_stands_as_in_the_file():
    assert programs.default(ShellSettings.format) == '"auto"'
    assert programs.default(ShellSettings.hints) == "true"
    assert programs.default(ShellSettings.verbose) == "false"
    assert programs.default(ForwarderSettings.idletime) == "30"
    assert programs.default(ShellSettings.device) == "none"


def test_variable_says_which_setting_it_overrides():
    said = programs.variables()
    assert entry(said, bold("PAGER")) == "Overrides \\fBpager\\fR in [qmadmin].\n"
    assert "\\fBcolor\\fR in [qmadmin] is \\(dqnever\\(dq" in entry(said, bold("NO_COLOR"))
    mine = programs.environment((LogSettings.prefix,))
    assert mine.startswith(f".TP\n{bold('ULOGPFX')}\n")


def test_keys_of_the_log_are_in_the_page():
    said = programs.log_keys()
    assert [entry(said, bold(key)) for key in JSON_KEYS] == [f"{escaped(text)}.\n" for text in JSON_KEYS.values()]


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.__name__)
def test_each_key_of_a_service_is_in_the_page_with_what_it_may_be_and_its_default(kind):
    said = section(ROOT / "man" / "tmqforward.8", "SERVICES")
    for key in keys_of(kind).values():
        allowed = escaped(key.form.allowed.removeprefix("a ").removeprefix("an "))
        text = entry(said, f"{bold(key.name)} ({allowed})")
        assert prose(key.help) in text
        assert ("The default is" in text) is not key.required
        assert key.required or prose(f"The default is {programs.default(key)}.") in text


def test_default_of_a_key_stands_as_in_the_file():
    found = {key.name: programs.default(key) for kind in KINDS.values() for key in keys_of(kind).values()}
    expected = {
        "workers": "that of `--workers`", "run": '"thread"', "method": '"POST"', "reply_headers": '["content-type"]',
        "timeout": "that of `-t`", "ca": "those of the system", "directory": "the daemon's own",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    "meanings", [command_service.FACTS, command_service.OUTCOMES, http_service.HEADERS, http_service.ANSWERS]
)
def test_what_a_service_is_given_and_may_say_is_in_the_page(meanings):
    said = section(ROOT / "man" / "tmqforward.8", "SERVICES")
    for name, meaning in meanings.items():
        assert f"\n{bold(name)}\n{prose(meaning)}\n" in said


@pytest.mark.parametrize(("begin", "page"), [(FORWARDER, "tmqforward.8"), (CONSUMER, "qmadmin-run.1")])
def test_each_metric_of_a_program_is_in_its_page(begin, page):
    for family in ProgramCollector(begin=begin).describe():
        of_space = family.name.startswith("qmadmin_") and not family.name.startswith(CONSUMER)
        suffix = "_total" if family.type == "counter" else ""
        # Those of queue spaces are the same in all programs, and stand in one page.
        where = ROOT / "man" / ("tmqforward.8" if of_space else page)
        said = entry(section(where, "METRICS"), f"{bold(family.name + suffix)} ({family.type})")
        assert said.startswith(f"{prose(family.documentation)}\n")


@pytest.mark.parametrize("name", CLASSES)
def test_class_of_the_management_information_base_is_in_its_page(name):
    text = section(ROOT / "man" / "qmadmin-mib.5", "CLASSES")
    own = text.partition(f".SS {escaped(name)}\n")[2].partition(".SS ")[0]
    told = describe(name)
    for attribute in told["attributes"]:
        said = entry(own, bold(attribute["name"]))
        assert said == f"{prose(attribute['about'])}\n{prose('Values: ' + attribute['values'] + '.')}\n"
    assert all(bold(state) in own for state in told["set"])


def test_flags_and_codes_of_the_management_information_base_are_in_its_page():
    page = ROOT / "man" / "qmadmin-mib.5"
    for flag in Flags:
        if flag:
            assert prose(flag.meaning) in entry(section(page, "FLAGS"), f"{bold(flag.name)} ({int(flag):#x})")
    for code in Code:
        assert entry(section(page, "ERRORS"), bold(code.name))


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_column_of_the_archive_is_in_its_page(column):
    said = section(ROOT / "man" / "qmadmin-archive.5", "COLUMNS").partition(".SS ")[0]
    assert entry(said, f"{bold(column.name)} ({manual.type_of(column.kind)}") == f"{prose(column.meaning)}\n"
    head = re.search(rf"^{re.escape(bold(column.name))} \((.*)\)$", said, re.MULTILINE)[1]
    assert column.unit in head
    assert ("may be null" in head) is not column.required


def test_each_field_of_a_manifest_is_in_the_page_of_the_archive():
    document = json.loads((ROOT / "tests/archive/golden-1/manifest.json").read_text())
    page = (ROOT / "man" / "qmadmin-archive.5").read_text()
    del document["selection"]
    bold = " ".join(re.findall(r"^(?:\.BR? |\\fB)(.*)", page, re.MULTILINE))
    said = set(re.findall(r"\w+", re.sub(r"\\f[BIR]|\\-", " ", bold)))
    assert set(fields(document)) <= said


def fields(found):
    """Yield the names of all fields of a JSON document."""
    for name, value in found.items() if isinstance(found, dict) else enumerate(found):
        if isinstance(name, str):
            yield name
        if isinstance(value, dict | list):
            yield from fields(value)
