"""The settings of the programs: where they come from, what wins, and one sentence for each fault."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from qmadmin.configuration import Configuration, ConfigurationError
from qmadmin.settings import SECTIONS, Setting, SettingKind, ShellSettings
from tests.fix_shell import ROOT

ALL = [setting for section in SECTIONS.values() for setting in section.declared().values()]
SECONDS = "a whole number of seconds from 0 to 2147483647, or a text such as '10m'"
OTHER = {
    SettingKind.SECONDS: 7,
    SettingKind.TEXT: "a word",
    SettingKind.PATH: "/a/path",
    SettingKind.STATE_PATH: "/a/path",
    SettingKind.FLAG: None,
    SettingKind.NUMBER: 7,
}


def other_than_default(setting):
    """Return a value that the file may give it, and that is not its default."""
    match setting.kind:
        case SettingKind.FLAG:
            return not setting.default
        case SettingKind.CHOICE:
            return setting.choices[-1]
        case SettingKind.TEXTS:
            return ["one", "two"]
        case SettingKind.MOVES:
            return ["/old -> /new"]
        case _:
            return OTHER[setting.kind]


def value_of(configuration, setting):
    return getattr(getattr(configuration, setting.section), setting.key)


def named(setting):
    return f"{setting.section}.{setting.key}"


@pytest.fixture
def write(tmp_path):
    """Write the file; return an environment that names it."""

    def write(text, **environ):
        file = tmp_path / "qmadmin.toml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return {"HOME": str(tmp_path), "QMADMIN_TOML": str(file)} | environ

    return write


def sentence(environ):
    """Return what is wrong, without the name of the file in front."""
    with pytest.raises(ConfigurationError) as caught:
        Configuration.load(environ)
    said = str(caught.value)
    assert "\n" not in said
    assert not said.endswith(".")
    assert caught.value.file == environ["QMADMIN_TOML"]
    return said.removeprefix(f"settings file {environ['QMADMIN_TOML']!r}").removeprefix(":").strip()


# ---- where they come from -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ALL, ids=named)
def test_without_a_file_each_setting_has_its_default(setting, tmp_path):
    configuration = Configuration.load({"HOME": str(tmp_path)})
    expected = f"{tmp_path}/.local/state/qmadmin/history" if setting.key == "history" else setting.default
    assert value_of(configuration, setting) == expected
    assert type(value_of(configuration, setting)) is type(setting.default)
    assert configuration.file == ""


@pytest.mark.parametrize("setting", ALL, ids=named)
def test_the_file_gives_each_setting(setting, write):
    value = other_than_default(setting)
    environ = write(f"[{setting.section}]\n{setting.key} = {json.dumps(value)}\n")
    configuration = Configuration.load(environ)
    assert value_of(configuration, setting) == (tuple(value) if isinstance(value, list) else value)
    assert configuration.file == environ["QMADMIN_TOML"]


@pytest.mark.parametrize("setting", [setting for setting in ALL if setting.variable], ids=named)
def test_the_environment_wins_over_the_file_unless_it_is_empty(setting, write):
    value = other_than_default(setting)
    text = f"[{setting.section}]\n{setting.key} = {json.dumps(value)}\n"
    won = Configuration.load(write(text, **{setting.variable: "theirs"}))
    assert value_of(won, setting) == (setting.meaning or "theirs")
    lost = Configuration.load(write(text, **{setting.variable: ""}))
    assert value_of(lost, setting) == value


@pytest.mark.parametrize("setting", [setting for setting in ALL if setting.kind is SettingKind.NUMBER], ids=named)
def test_a_number_may_be_the_least_and_the_most_and_no_less_and_no_more(setting, write):
    for value in (setting.low, setting.high):
        environ = write(f"[{setting.section}]\n{setting.key} = {value}\n")
        assert value_of(Configuration.load(environ), setting) == value
    for value in (setting.low - 1, setting.high + 1):
        assert f"got {value}" in sentence(write(f"[{setting.section}]\n{setting.key} = {value}\n"))


def test_each_variable_of_the_programs_belongs_to_a_setting():
    assert {setting.variable for setting in ALL} - {""} == {
        "QMCONFIG", "QMSPACE", "ULOGPFX", "PAGER", "NO_COLOR", "QM_SERVICES",
    }  # fmt: skip


def test_older_spelling_of_a_variable_counts_where_the_newer_says_nothing():
    assert Configuration.load({"QM_SPACE": "OLD"}).qmadmin.space == "OLD"
    assert Configuration.load({"QM_SPACE": "OLD", "QMSPACE": "NEW"}).qmadmin.space == "NEW"
    assert Configuration.load({}).qmadmin.space == ""


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({"HOME": "{0}"}, ".config/qmadmin/qmadmin.toml"),
        ({"HOME": "{0}/"}, ".config/qmadmin/qmadmin.toml"),
        ({"HOME": "{0}", "XDG_CONFIG_HOME": ""}, ".config/qmadmin/qmadmin.toml"),
        ({"HOME": "{0}", "XDG_CONFIG_HOME": "relative"}, ".config/qmadmin/qmadmin.toml"),
        ({"HOME": "{0}", "XDG_CONFIG_HOME": "{0}/xdg"}, "xdg/qmadmin/qmadmin.toml"),
        ({"XDG_CONFIG_HOME": "{0}/xdg/"}, "xdg/qmadmin/qmadmin.toml"),
        ({"HOME": "{0}", "XDG_CONFIG_HOME": "{0}/xdg", "QMADMIN_TOML": "{0}/mine"}, "mine"),
        ({"HOME": "{0}", "QMADMIN_TOML": ""}, ".config/qmadmin/qmadmin.toml"),
    ],
)
def test_the_file_is_looked_for_in_one_place(environ, found, tmp_path):
    for place in (".config/qmadmin/qmadmin.toml", "xdg/qmadmin/qmadmin.toml", "mine"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(f'[log]\nprefix = "{place}"\n')
    configuration = Configuration.load({name: value.format(tmp_path) for name, value in environ.items()})
    assert configuration.log.prefix == found
    assert Path(configuration.file) == tmp_path / found


def test_a_file_is_not_looked_for_anywhere_else(tmp_path):
    place = tmp_path / ".config" / "qmadmin" / "qmadmin.toml"
    place.parent.mkdir(parents=True)
    place.write_text("this is no TOML")
    elsewhere = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    assert Configuration.load(elsewhere).file == ""
    assert Configuration.load({}).file == ""


def test_a_directory_in_the_way_that_is_a_file_means_that_there_is_none(tmp_path):
    (tmp_path / ".config").write_text("")
    assert Configuration.load({"HOME": str(tmp_path)}).file == ""


def test_an_empty_file_and_empty_sections_change_nothing(write):
    for text in ("", "# nothing\n", "[qmadmin]\n[log]\n[tmqforward]\n"):
        assert Configuration.load(write(text)).tmqforward.trantime == 60


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("'90s'", 90), ("'10m'", 600), ("'1.5h'", 5400), ("'1d'", 86400)]
)
def test_seconds_may_have_a_unit(write, text, seconds):
    assert Configuration.load(write(f"[tmqforward]\ntrantime = {text}\n")).tmqforward.trantime == seconds


@pytest.mark.parametrize("text", ["'10x'", "'0.5s'", "'99999d'", "'60'", "''", "1.5"])
def test_seconds_that_are_none_are_refused(write, text):
    with pytest.raises(ConfigurationError, match=re.escape(SECONDS)):
        Configuration.load(write(f"[tmqforward]\ntrantime = {text}\n"))


def test_dev_null_is_a_file_without_settings(tmp_path):
    (tmp_path / ".config/qmadmin").mkdir(parents=True)
    (tmp_path / ".config/qmadmin/qmadmin.toml").write_text("this is no TOML")
    configuration = Configuration.load({"HOME": str(tmp_path), "QMADMIN_TOML": os.devnull})
    assert configuration.qmadmin.format == "auto"


def test_tilde_is_the_home_directory_in_paths_and_nowhere_else(write, tmp_path):
    text = '[qmadmin]\ndevice = "~/QUE"\npager = "~/less"\nhistory = "~/h"\n[log]\nprefix = "~"\n'
    configuration = Configuration.load(write(text))
    assert configuration.qmadmin.device == f"{tmp_path}/QUE"
    assert configuration.qmadmin.history == f"{tmp_path}/h"
    assert configuration.qmadmin.pager == "~/less"
    assert configuration.log.prefix == str(tmp_path)
    assert Configuration.load(write('[log]\nprefix = "~joe/x"\n')).log.prefix == "~joe/x"
    assert Configuration.load(write("", ULOGPFX="~/x")).log.prefix == "~/x"


@pytest.mark.parametrize(
    ("value", "environ", "expected"),
    [
        (None, {}, "{0}/.local/state/qmadmin/history"),
        ("lines", {}, "{0}/.local/state/qmadmin/lines"),
        ("lines", {"XDG_STATE_HOME": "/state"}, "/state/qmadmin/lines"),
        ("lines", {"XDG_STATE_HOME": "relative"}, "{0}/.local/state/qmadmin/lines"),
        ("/tmp/lines", {"XDG_STATE_HOME": "/state"}, "/tmp/lines"),
        ("", {"XDG_STATE_HOME": "/state"}, ""),
        (None, {"HOME": ""}, ""),
    ],
)
def test_history_is_kept_beneath_the_state_directory_unless_its_path_is_absolute(
    value, environ, expected, write, tmp_path
):
    text = "" if value is None else f"[qmadmin]\nhistory = {json.dumps(value)}\n"
    assert Configuration.load(write(text, **environ)).qmadmin.history == expected.format(tmp_path)


def test_a_setting_cannot_be_changed_by_a_program():
    configuration = Configuration.load({})
    with pytest.raises(AttributeError, match="verbose"):
        configuration.qmadmin.verbose = True
    assert configuration.qmadmin.verbose is False


def test_without_a_file_nothing_is_loaded_to_read_one():
    code = """
import sys
from qmadmin.configuration import Configuration
Configuration.load({"HOME": "/nonexistent"})
print(sorted({"tomllib", "difflib", "dataclasses"} & set(sys.modules)))
"""
    paths = os.pathsep.join(str(ROOT / part) for part in ("", "core", "storage"))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


# ---- what is declared -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ALL, ids=named)
def test_declaration_is_complete(setting):
    assert setting.help.endswith(".")
    assert setting.allows(setting.default)
    assert setting.kind is not SettingKind.NUMBER or setting.low < setting.high
    assert (setting.kind is SettingKind.CHOICE) is bool(setting.choices)
    assert not setting.meaning or setting.allows(setting.meaning)


def test_declaration_is_an_attribute_of_its_section():
    assert isinstance(ShellSettings.format, Setting)
    assert (ShellSettings.format.section, ShellSettings.format.key) == ("qmadmin", "format")
    assert list(ShellSettings.declared()) == [
        "device",
        "space",
        "format",
        "paginate",
        "verbose",
        "echo",
        "pager",
        "history",
        "history_lines",
        "bottom_line",
        "hints",
        "color",
    ]


# ---- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[qmadmni]\nformat = 1\n",
            (
                "has the unknown section [qmadmni]; there are [qmadmin], [log], [tmqforward], [capacity], [recovery];"
                " did you mean [qmadmin]?"
            ),
        ),
        (
            "[colours]\n",
            "has the unknown section [colours]; there are [qmadmin], [log], [tmqforward], [capacity], [recovery]",
        ),
        (
            '[recovery]\nmoved = ["a=b"]\n',
            'moved in [recovery] must be a list of texts in quotes, such as ["old -> new"], without control characters',
        ),
        ("x = 1\n", "has the unknown section [x]; there are [qmadmin], [log], [tmqforward], [capacity], [recovery]"),
        ('device = "QUE"\n', "has device = 'QUE' outside of a section; it belongs to [qmadmin]"),
        ('format = "json"\n', "has format = 'json' outside of a section; it belongs to [qmadmin] or [log]"),
        ("log = 1\n", "log must be a section [log], got 1"),
        ("[[log]]\n", "log must be a section [log], got [{}]"),
        (
            "[log]\nFormatt = 5\n",
            "[log] has the unknown setting Formatt = 5; there are prefix, format; did you mean format?",
        ),
        (
            "[tmqforward]\nqueue = 'Q'\n",
            "[tmqforward] has the unknown setting queue = 'Q'; there are services, trantime, idletime",
        ),
        ("[log]\npager = 'cat'\n", "[log] has the unknown setting pager = 'cat'; it belongs to [qmadmin]"),
        (
            "[tmqforward]\ntrantime = '60'\n",
            f"trantime in [tmqforward] must be {SECONDS}, got '60'",
        ),
        (
            "[tmqforward]\ntrantime = true\n",
            f"trantime in [tmqforward] must be {SECONDS}, got true",
        ),
        (
            "[tmqforward]\nidletime = -1\n",
            f"idletime in [tmqforward] must be {SECONDS}, got -1",
        ),
        (
            "[tmqforward]\nidletime = 2147483648\n",
            f"idletime in [tmqforward] must be {SECONDS}, got 2147483648",
        ),
        (
            "[qmadmin]\nhistory_lines = 0\n",
            "history_lines in [qmadmin] must be a whole number from 1 to 1000000, got 0",
        ),
        (
            "[qmadmin]\nhistory_lines = 1.5\n",
            "history_lines in [qmadmin] must be a whole number from 1 to 1000000, got 1.5",
        ),
        ("[qmadmin]\nhints = 1\n", "hints in [qmadmin] must be true or false, got 1"),
        ("[qmadmin]\necho = 'on'\n", "echo in [qmadmin] must be true or false, got 'on'"),
        (
            "[qmadmin]\nformat = 'jsn'\n",
            "format in [qmadmin] must be one of auto, table, plain, json, csv, got 'jsn'; did you mean 'json'?",
        ),
        (
            "[qmadmin]\ncolor = ['never']\n",
            "color in [qmadmin] must be one of auto, never, got ['never']",
        ),
        (
            "[log]\nprefix = 5\n",
            "prefix in [log] must be a text in quotes, without control characters, got 5",
        ),
        (
            '[log]\nprefix = "a\\u0000b"\n',
            "prefix in [log] must be a text in quotes, without control characters, got 'a\\x00b'",
        ),
        ("[log]\nprefix = 2020-01-01\n", "prefix in [log] must be a text in quotes, without control characters, got"),
        ('[log]\n"a\\nb" = 1\n', "[log] has the unknown setting 'a\\nb' = 1; there are prefix, format"),
        ('"" = 1\n', "has the unknown section ['']; there are [qmadmin], [log], [tmqforward], [capacity], [recovery]"),
        ("[log\n", "is not TOML: Expected ']'"),
        ("[log]\n[log]\n", "is not TOML: Cannot declare"),
        (b"[log]\nprefix = '\xff'\n", "is not TOML: 'utf-8' codec can't decode byte 0xff"),
        ("[log]\nprefix = " + "[" * 5000 + "\n", "is not TOML: "),
        ("[tmqforward]\ntrantime = " + "9" * 5000 + "\n", "is not TOML: Exceeds the limit"),
        (
            "[tmqforward]\ntrantime = 0x" + "f" * 5000 + "\n",
            f"trantime in [tmqforward] must be {SECONDS}, got a number that is too long",
        ),
        ("[log]\n" + "x" * 70 + " = 1\n", f"[log] has the unknown setting '{'x' * 56}... = 1; there are"),
    ],
)
def test_fault_is_one_sentence_with_what_is_meant_and_what_is_allowed(text, said, write):
    found = sentence(write(text))
    # Where nothing is like it, there is no guess.
    assert found.startswith(said)
    assert ("did you mean" in found) is ("did you mean" in said)


def test_error_tells_its_facts(write):
    with pytest.raises(ConfigurationError) as caught:
        Configuration.load(write("[tmqforward]\ntrantime = -5\n"))
    error = caught.value
    assert (error.section, error.key, error.value) == ("tmqforward", "trantime", -5)


def test_a_file_that_is_named_and_not_there_is_an_error(tmp_path):
    environ = {"QMADMIN_TOML": str(tmp_path / "none.toml")}
    assert sentence(environ) == f"there is no settings file {str(tmp_path / 'none.toml')!r}, which QMADMIN_TOML names"


def test_a_file_that_cannot_be_read_is_an_error(tmp_path):
    assert sentence({"QMADMIN_TOML": str(tmp_path)}) == "cannot be read: Is a directory"
    place = tmp_path / ".config/qmadmin/qmadmin.toml"
    place.mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=r"qmadmin\.toml' cannot be read: Is a directory"):
        Configuration.load({"HOME": str(tmp_path)})


def test_a_name_that_no_file_can_have_is_an_error():
    assert "cannot be read" in sentence({"QMADMIN_TOML": "x" * 5000})
