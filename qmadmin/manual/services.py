"""The services file and what the kinds of services are given and may say, for tmqforward(8)."""

from __future__ import annotations

from collections.abc import Mapping

from qmadmin.forwarder import command_service, http_messages, outcome
from qmadmin.forwarder.descriptions import KINDS, Description
from qmadmin.forwarder.service_keys import Key, keys_of
from qmadmin.manual.roff import bold, escaped, terms


def parts() -> dict[str, str]:
    """Return the generated parts of the page."""
    return {
        "KEYS OF ALL SERVICES": _listed(keys_of(Description)),
        **{f"KEYS OF {teller.upper()}": _listed(_own(kind)) for teller, kind in KINDS.items()},
        "VARIABLES OF COMMANDS": _defined(command_service.FACTS),
        "OUTCOME": _defined(outcome.NAMES),
        "HTTP HEADERS": _defined(http_messages.HEADERS),
        "HTTP ANSWERS": _defined(http_messages.ANSWERS),
    }


def default(key: Key) -> str:
    """Return the default of a key as it would stand in the file, or described."""
    if key.default_help:
        return key.default_help
    if isinstance(key.default, tuple):
        return "[" + ", ".join(f'"{item}"' for item in key.default) + "]"
    return f'"{key.default}"' if isinstance(key.default, str) else str(key.default)


def _own(kind: type[Description]) -> dict[str, Key]:
    common = keys_of(Description)
    return {name: key for name, key in keys_of(kind).items() if name not in common}


def _listed(keys: Mapping[str, Key]) -> str:
    return terms((_head(key), _text(key)) for key in keys.values())


def _head(key: Key) -> str:
    return f"{bold(key.name)} ({escaped(key.form.allowed.removeprefix('a ').removeprefix('an '))})"


def _text(key: Key) -> str:
    return key.help if key.required else f"{key.help} The default is {default(key)}."


def _defined(meanings: Mapping[str, str]) -> str:
    return terms(((bold(name), meaning) for name, meaning in meanings.items()), indent="18")
