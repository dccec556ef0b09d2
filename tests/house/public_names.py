"""Every name that users rely on: what the packages export, what pages show, what scripts and dashboards name.

`test_public_names.py` compares them with `public_names.txt`; `python tests/house/public_names.py` writes that again.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).with_suffix(".txt")


def public_names() -> list[str]:
    """Return all of them, sorted; each line begins with what it is a name of."""
    return sorted({*_exported(), *_of_the_shell(), *_of_programs(), *_of_settings(), *_of_the_mib(), *_of_storage()})


def _exported() -> Iterator[str]:
    import qmadmin
    from qmadmin import aio, atmi, django, forwarder, mib, pytest_plugin, spark, testing, zope
    from qmcore import errors

    for module in (qmadmin, aio, atmi, mib, forwarder, spark, testing, django, zope):
        for name in module.__all__:
            yield f"python {module.__name__}.{name}"
            if module is not atmi:
                yield from _members(f"{module.__name__}.{name}", getattr(module, name))
    yield from (f"fixture {name}" for name in vars(pytest_plugin) if name.startswith("qmadmin_"))
    yield from (
        f"diagnostic {found.name}"
        for found in vars(errors).values()
        if isinstance(found, type) and hasattr(found, "number")
    )


def _members(path: str, found: Any) -> Iterator[str]:
    if inspect.isroutine(found):
        yield f"python {path}{_parameters(found)}"
    if not isinstance(found, type):
        return
    for name in dir(found):
        if not name.startswith("_"):
            member = inspect.getattr_static(found, name)
            parameters = _parameters(getattr(found, name)) if inspect.isroutine(getattr(found, name)) else ""
            yield f"python {path}.{name}{parameters}" if member is not None else ""
    if dataclasses.is_dataclass(found):
        yield from (
            f"python {path}.{field.name}" for field in dataclasses.fields(found) if not field.name.startswith("_")
        )


def _parameters(function: Any) -> str:
    try:
        names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    except ValueError:
        return "()"
    return f"({', '.join(names)})"


def _of_the_shell() -> Iterator[str]:
    from qmadmin.shell.catalogue import GROUPS

    for command in (command for group in GROUPS for command in group.commands):
        yield from (f"command {name}" for name in command.names)
        yield f"command {command.synopsis}"


def _of_programs() -> Iterator[str]:
    from qmadmin.console.process import Exit
    from qmadmin.forwarder.program import tmqforward
    from qmadmin.program import qmadmin
    from qmadmin.spark.program import qmspark
    from qmadmin.worker_program import qmadmin_run

    yield from (f"status {status.value} {status.name}" for status in Exit)

    def options(name: str, command: click.Command) -> Iterator[str]:
        for parameter in command.params:
            yield f"option {name} {'/'.join((*parameter.opts, *parameter.secondary_opts))}"
        for each, sub in getattr(command, "commands", {}).items():
            yield from options(f"{name} {each}", sub)

    for program in (qmadmin, qmadmin_run, qmspark, tmqforward):
        yield from options(str(program.name), program)


def _of_settings() -> Iterator[str]:
    from qmadmin import settings
    from qmadmin.monitoring import consumer_metrics as metrics
    from qmadmin.monitoring.metrics import FAMILIES

    for section in settings.Section.__subclasses__():
        for setting in (value for value in vars(section).values() if isinstance(value, settings.Setting)):
            yield f"setting {setting.section}.{setting.key}"
            yield from (f"variable {name}" for name in (setting.variable, setting.older_variable) if name)
    of_consumers = (family for begin in (metrics.FORWARDER, metrics.CONSUMER) for family in metrics.all_families(begin))
    for family in (*of_consumers, *FAMILIES):
        yield f"metric {family.shown}"
    yield from _in_sources("logger", r'getLogger\("(qmadmin[\w.]*)"\)')
    yield from _in_sources("variable", r'"(QM_?(?!E[A-Z])[A-Z][A-Z_]+|ULOGPFX)"')


def _in_sources(kind: str, pattern: str) -> Iterator[str]:
    for package in ("qmadmin", "core", "storage"):
        for file in (ROOT / package).rglob("*.py"):
            yield from (f"{kind} {name}" for name in re.findall(pattern, file.read_text()))


def _of_the_mib() -> Iterator[str]:
    from qmadmin.mib.requests import CLASSES

    for of in CLASSES.values():
        yield from (f"mib {of.name}.{attribute.name}" for attribute in of.attributes)


def _of_storage() -> Iterator[str]:
    from qmadmin.archive import columns
    from qmstorage.schema import metadata
    from qmstorage.sql import made

    yield from _named("archive", vars(columns).values())
    for table in made(metadata).tables.values():
        yield from (f"table {table.name}.{column.name}" for column in table.columns)


def _named(kind: str, values: Iterable[Any]) -> Iterator[str]:
    """Yield the names of the columns of archives, which are declared in sequences."""
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from (f"{kind} {each.name}" for each in value if isinstance(getattr(each, "name", None), str))


if __name__ == "__main__":
    RECORDED.write_text("\n".join(public_names()) + "\n")
