r"""Identifiers as qmadmin(1) writes them: bytes that cannot be printed, blanks and backslashes as `\xx`.

Tuxedo's form is a backslash and two hexadecimal digits for a byte, as in `hello\20world`.
"""

from __future__ import annotations

from qmcore.errors import InvalidArgumentError

_HEX = "0123456789abcdefABCDEF"


def printable(text: str) -> str:
    """Return the text with everything that cannot be printed escaped, so that no name can drive the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def quoted(text: str) -> str:
    """Return a text in quotes, as the shell reads a word with blanks in it."""
    if "\\" in text and "'" not in text:
        return f"'{text}'"
    inside = text.replace('"', '\\"')
    return f'"{inside}"'


def escaped(identifier: bytes) -> str:
    """Return an identifier as text that `unescaped` reads back."""
    return "".join(chr(byte) if 0x20 < byte < 0x7F and byte != 0x5C else f"\\{byte:02x}" for byte in identifier)


def unescaped(text: str) -> bytes:
    r"""Return the bytes that a text means; a backslash without two hexadecimal digits or another is refused."""
    first, *parts = text.split("\\")
    found = first.encode(errors="surrogateescape")
    while parts:
        part = parts.pop(0)
        if part == "" and parts:
            # Two backslashes are one.
            found += b"\\" + parts.pop(0).encode(errors="surrogateescape")
            continue
        if len(part) < 2 or not set(part[:2]) <= set(_HEX):
            raise InvalidArgumentError(f"a backslash must be followed by two hexadecimal digits: {text!r}")
        found += bytes([int(part[:2], 16)]) + part[2:].encode(errors="surrogateescape")
    return found
