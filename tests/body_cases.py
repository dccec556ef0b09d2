"""What conditions on bodies mean: one table, which runs through the engine and the SQL of each store.

Each case is a body, a condition, and whether that is true, false, or neither (None).
"""

from __future__ import annotations

from typing import Final

DIGITS_30: Final = "123456789012345678901234567890"
DIGITS_400: Final = "1" + "0" * 398 + "1"
MIB: Final = 1024 * 1024


def nested(levels: int) -> bytes:
    """Return a body of so many levels with a member beside them."""
    return b'{"a":1,"deep":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def padded(size: int) -> bytes:
    """Return a body of so many bytes."""
    start, end = b'{"a":1,"padding":"', b'"}'
    return start + b"x" * (size - len(start) - len(end)) + end


ORDER: Final = (
    rb'{"customer":{"name":"ann"},"lines":[{"sku":"x-1"},{"sku":"x-2"}],"total":12.50,"paid":true,"note":null}'
)

CASES: Final[list[tuple[bytes | None, str, bool | None]]] = [
    # Paths.
    (ORDER, "body.customer.name = 'ann'", True),
    (ORDER, "body.customer.name <> 'ann'", False),
    (ORDER, "body.customer.Name = 'ann'", None),
    (ORDER, "BODY.customer.name IS NOT NULL", True),
    (ORDER, "body.lines[0].sku = 'x-1'", True),
    (ORDER, "body.lines[1].sku LIKE 'x-_'", True),
    (ORDER, "body.lines[2].sku = 'x-1'", None),
    (ORDER, "body.lines[999999999] IS NULL", True),
    (ORDER, "body.lines.sku = 'x-1'", None),
    (ORDER, 'body.lines."0" IS NULL', True),
    (ORDER, "body.customer[0] IS NULL", True),
    (ORDER, "body.total.name IS NULL", True),
    (ORDER, "body[0] IS NULL", True),
    (b'[7,[8,"9"]]', "body[0] = 7", True),
    (b'[7,[8,"9"]]', "body[1][1] = '9'", True),
    (b'{"0":1,"a-b":2,"a.b":3,"a\\"b":4,"":5,"\\u00e9":6,"[0]":7}', "body.0 = 1 AND body.a-b = 2", True),
    (b'{"0":1,"a-b":2,"a.b":3,"a\\"b":4,"":5,"\\u00e9":6,"[0]":7}', 'body."a.b" = 3 AND body."a""b" = 4', True),
    (b'{"0":1,"a-b":2,"a.b":3,"a\\"b":4,"":5,"\\u00e9":6,"[0]":7}', 'body."" = 5 AND body."é" = 6', True),
    (b'{"0":1,"a-b":2,"a.b":3,"a\\"b":4,"":5,"\\u00e9":6,"[0]":7}', 'body."[0]" = 7 AND body.a.b = 3', None),
    # Values and their types.
    (ORDER, "body.paid = true", True),
    (ORDER, "body.paid <> FALSE", True),
    (ORDER, "body.paid IN (false)", False),
    (ORDER, "body.paid = 1", None),
    (ORDER, "body.paid = 'true'", None),
    (ORDER, "body.note IS NULL", True),
    (ORDER, "body.note = 'null'", None),
    (ORDER, "body.customer IS NULL", False),
    (ORDER, "body.customer = 'ann'", None),
    (ORDER, "body.lines <> 'ann'", None),
    (ORDER, "body.customer.name = 5", None),
    (ORDER, "NOT body.total = '12.50'", None),
    (ORDER, "body.total LIKE '%'", None),
    (ORDER, "body.total = 1 OR body.customer.name = 'ann'", True),
    (ORDER, "body.nothing = 1 AND body.customer.name = 'bob'", False),
    (ORDER, "body.nothing = 1 OR body.customer.name = 'bob'", None),
    (ORDER, "body.customer.name IN ('bob','ann')", True),
    (ORDER, "body.customer.name NOT IN ('bob','eve')", True),
    (ORDER, "body.customer.name BETWEEN 'a' AND 'b'", True),
    (ORDER, "body.customer.name NOT BETWEEN 'b' AND 'c'", True),
    # Numbers.
    (ORDER, "body.total = 12.5", True),
    (ORDER, "body.total BETWEEN 12.49 AND 12.51", True),
    (ORDER, "body.total IN (12, 12.500)", True),
    (ORDER, "body.total > 12.500000000000000000000000001", False),
    (b'{"a":0.1}', "body.a = 0.1", True),
    (b'{"a":0.1000000000000000055511151231257827}', "body.a = 0.1", False),
    (b'{"a":1.5E+3}', "body.a = 1500", True),
    (b'{"a":1e-3}', "body.a = 0.001", True),
    (b'{"a":-0}', "body.a = 0 AND body.a >= -0", True),
    (b'{"a":%s}' % DIGITS_30.encode(), f"body.a = {DIGITS_30}", True),
    (b'{"a":%s}' % DIGITS_30.encode(), f"body.a = {DIGITS_30[:-1]}1", False),
    (b'{"a":%s.5}' % DIGITS_30.encode(), f"body.a > {DIGITS_30}", True),
    (b'{"a":%s}' % DIGITS_400.encode(), f"body.a = {DIGITS_400}", True),
    (b'{"a":-%s}' % DIGITS_400.encode(), "body.a < -1", True),
    (b'{"a":9007199254740993}', "body.a = 9007199254740992", False),
    (b'{"a":1e400,"b":2}', "body.a > 1 AND body.b = 2", True),
    (b'{"a":1e999}', "body.a > 1", True),
    (b'{"a":1e+0001}', "body.a = 10", True),
    (b'{"a":1e1000,"b":2}', "body.a > 1", None),
    (b'{"a":1e1000,"b":2}', "body.a IS NOT NULL AND body.b = 2", True),
    (b'{"a":1e999999999999,"b":2}', "body.a > 1", None),
    (b'{"a":%s,"b":2}' % (b"1" * 1000), "body.a > 1", True),
    (b'{"a":%s,"b":2}' % (b"1" * 1001), "body.a > 1", None),
    (b'{"a":%s,"b":2}' % (b"1" * 200_000), "body.b = 2 AND body.a IS NOT NULL", True),
    # Members of the same name: the last counts.
    (b'{"a":1,"a":2}', "body.a = 2", True),
    (b'{"a":1,"\\u0061":2}', "body.a = 2", True),
    (b'{"a":{"b":1},"a":{"c":2}}', "body.a.b IS NULL", True),
    (b'{"a":1,"a":null}', "body.a IS NULL", True),
    (b'{"a":{"b":1},"a":3}', "body.a.b = 1", None),
    # Text.
    (b'{"a":"b\\nc"}', "body.a = 'b\nc'", True),
    (b'{"a":"\\u00e9\\/\\""}', "body.a = 'é/\"'", True),
    ('{"a":"é"}'.encode(), "body.a = 'é'", True),
    (b'{"a":"\\ud83d\\ude00"}', "body.a = '😀' AND body.a LIKE '_'", True),
    ('{"a":"😀"}'.encode(), "body.a > '\uffff' AND body.a LIKE '_'", True),
    (b'{"a":"Z"}', "body.a < 'a'", True),
    ('{"a":"ä"}'.encode(), "body.a > 'z'", True),
    (b'{"a":"a%b_c*d?e[f]"}', "body.a LIKE 'a\\%b\\_c*d?e[f]'", True),
    (b'{"a":"axbxcxd"}', "body.a LIKE 'a%b%c%d'", True),
    (b'{"a":"axbxc"}', "body.a LIKE '%b%c%d'", False),
    (b'{"a":"ab"}', "body.a LIKE '%a%b%b'", False),
    (b'{"a":"a\\nb"}', "body.a LIKE 'a_b'", True),
    (b'{"a":"\xef\xbf\xbd"}', "body.a LIKE '\ufffe'", False),
    (b'{"a":"' + b"ab" * 1000 + b'"}', f"body.a LIKE '{'%a' * 50}%c'", False),
    # An escaped NUL reads as U+FFFD, which disturbs nothing else.
    (b'{"a":"x\\u0000y","b":1}', "body.b = 1", True),
    (b'{"a":"x\\u0000y"}', "body.a = 'x'", False),
    (b'{"a":"x\\u0000y"}', "body.a = 'x\ufffdy'", True),
    (b'{"a":"x\\u0000y"}', "body.a LIKE 'x_y'", True),
    (b'{"\\u0000":1,"a":2}', 'body.a = 2 AND body."\ufffd" = 1', True),
    (b'{"a":"x\\\\u0000"}', "body.a = 'x\\u0000'", True),
    (b'{"a":"x\\\\\\u0000"}', "body.a = 'x\\\ufffd'", True),
    (b'{"a":"\\\\","b":"\\u0000"}', "body.a = '\\'", True),
]

NO_JSON: Final[dict[str, bytes | None]] = {
    "half of a pair": b'{"a":1,"b":"\\ud800"}',
    "the other half": b'{"a":1,"b":"\\uDC00"}',
    "halves in the wrong order": b'{"a":1,"b":"\\udc00\\ud800"}',
    "halves with something between": b'{"a":1,"b":"\\ud83d\\\\\\ude00"}',
    "two first halves": b'{"a":1,"b":"\\ud83d\\ud83d\\ude00"}',
    "half of a pair in a name": b'{"a":1,"\\ud800":2}',
    "half of a pair that is replaced": b'{"b":"\\ud800","b":2,"a":1}',
    "half of a pair beside NUL": b'{"a":1,"b":"\\u0000\\ud800"}',
    "NaN": b'{"a":1,"b":NaN}',
    "Infinity": b'{"a":1,"b":Infinity}',
    "-Infinity": b'{"a":1,"b":-Infinity}',
    "truncated": b'{"a":1,"b":[1,2',
    "truncated text": b'{"a":1,"b":"x',
    "truncated escape": b'{"a":1,"b":"\\u00"}',
    "truncated number": b'{"a":1,"b":1.}',
    "leading zero": b'{"a":1,"b":01}',
    "plus": b'{"a":1,"b":+1}',
    "something after": b'{"a":1} x',
    "two values": b'{"a":1}{"a":1}',
    "a comma too many": b'{"a":1,}',
    "single quotes": b"{'a':1}",
    "a comment": b'{"a":1/*x*/}',
    "unknown escape": b'{"a":1,"b":"\\x41"}',
    "a NUL": b'{"a":1}\0',
    "a NUL in text": b'{"a":1,"b":"\0"}',
    "a control character in text": b'{"a":1,"b":"\n"}',
    "byte order mark": b'\xef\xbb\xbf{"a":1}',
    "UTF-16": '{"a":1}'.encode("utf-16-le"),
    "invalid UTF-8": b'{"a":1,"b":"\xff"}',
    "UTF-8 that is too long": b'{"a":1,"b":"\xc0\x80"}',
    "a surrogate in UTF-8": b'{"a":1,"b":"\xed\xa0\x80"}',
    "beyond Unicode": b'{"a":1,"b":"\xf4\x90\x80\x80"}',
    "an unusual blank": b'{"a":\xc2\xa01}',
    "nothing": b"",
    "blanks": b"  \n",
    "no body": None,
    "true alone": b"true",
    "a text alone": b'"a"',
    "257 levels": nested(257),
    "10,000 levels": nested(10_000),
    "10,000 levels that do not end": b'{"a":1,"b":' + b"[" * 10_000,
    "too large": padded(MIB + 1),
    "in several chunks": padded(2 * MIB + 17),
}
"""Bodies that have no values."""

JSON: Final[dict[str, bytes]] = {
    "blanks around": b' \t\r\n{ "a" : 1 , "b" : [ ] }\r\n ',
    "DEL in text": b'{"a":1,"b":"\x7f"}',
    "256 levels": nested(256),
    "much beside each other": b'{"b":[' + b"[]," * 1000 + b'{}],"a":1}',
    "brackets in text": b'{"a":1,"b":"' + b"[" * 1000 + b'\\"{"}',
    "the largest": padded(MIB),
}
"""Bodies in which `body.a = 1`."""

CASES += [(body, "body.a = 1", None) for body in NO_JSON.values()]
CASES += [(body, "body.a IS NULL", True) for body in NO_JSON.values()]
CASES += [(body, "body.a = 1", True) for body in JSON.values()]
