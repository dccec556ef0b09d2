"""The texts of statements are what SQLAlchemy makes of them, and whoever has them does without it."""

import json
import os
import re
import subprocess
import sys

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, select

from qmstorage import compiling, sql, texts
from qmstorage.postgres import tables
from qmstorage.sqlite import files
from tests.fix_store import SOURCES
from tests.house.test_order_in_the_house import ROOT

pytest.importorskip("psycopg")
DIALECTS = [files.DIALECT, tables.DIALECT]
each_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)

WORK = """
import sys
from qmadmin.opening import open_device
with open_device({device!r}) as device, device.open_space("SPACE") as space:
    msgid = space.enqueue("Q", b"x", priority=7, headers={{"a": "b"}})
    space.enqueue("Q", b"y", delay=1000)
    assert space.dequeue("Q", msgid=msgid).body == b"x"
    with space.transaction():
        space.enqueue_many("Q", [b"1", b"2"])
        assert space.dequeue("Q", wait=None) is None
    with space.transaction():
        assert space.dequeue("Q").body == b"1"
        space.enqueue("Q", b"reply")
    assert [info.size for info in space.browse("Q")][:2] == [1, 5]
print(sorted(name for name in sys.modules if name.startswith("sqlalchemy"))[:1])
"""


@each_dialect
def test_texts_are_what_sqlalchemy_makes_of_the_statements(dialect):
    found = list(compiling.statements(dialect))
    assert len(found) > 300
    for statement in found:
        for schema in ("", "its_own"):
            options = {"schema_translate_map": {None: schema}} if schema else {}
            compiled = sql.made(statement).compile(
                dialect=dialect.loaded(), render_schema_translate=bool(schema), **options
            )
            text = compiling.compiled(statement, dialect)
            assert text.on(schema) == str(compiled)
            assert text.constants.items() <= compiled.params.items()


@each_dialect
def test_no_two_statements_are_found_by_the_same_declaration(dialect):
    found = {}
    for statement in compiling.statements(dialect):
        assert found.setdefault(texts.key(statement), compiling.compiled(statement, dialect)) == compiling.compiled(
            statement, dialect
        )


@each_dialect
def test_a_declaration_tells_no_address_and_the_file_everything(dialect):
    content = compiling.content(dialect)
    assert compiling.content(dialect) == content
    assert not any(re.search(r" at 0x|<.*object", repr(each)) for each in compiling.statements(dialect))
    for key, text in json.loads(content)["texts"].items():
        assert re.fullmatch("[0-9a-f]{16}", key)
        assert texts.Text(*text).text


def test_a_statement_of_other_sources_is_compiled_when_it_runs(monkeypatch, tmp_path):
    path = tmp_path / "texts.json"
    path.write_text(json.dumps({"of": 0, "texts": {}}), encoding="utf-8")
    monkeypatch.setattr(texts, "path_of", lambda _: path)
    texts.read.cache_clear()
    try:
        statement = next(compiling.statements(files.DIALECT))
        assert texts.find(statement, files.DIALECT) is None
    finally:
        texts.read.cache_clear()


@pytest.mark.usefixtures("compiled_texts")
def test_a_zip_of_the_package_has_them_too(tmp_path):
    zipped = tmp_path / "qmadmin.zip"
    subprocess.run([sys.executable, "scripts/spark/make_zip.py", zipped], cwd=ROOT, check=True, timeout=240)
    count = "from qmstorage import texts; from qmstorage.sqlite import files; print(len(texts.read(files.DIALECT)))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", count],
        env=os.environ | {"PYTHONPATH": str(zipped)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert int(done.stdout) > 300


def test_what_is_written_of_a_statement_is_made_of_sqlalchemy():
    declared = sql.Table("t", sql.MetaData(), sql.Column("a", sql.Integer), sql.Column("b", sql.Integer))
    theirs = Table("t", MetaData(), Column("a", Integer), Column("b", Integer))
    inner = sql.select(declared.c.a).where(declared.c.b > 1).subquery("inner")
    ours = sql.select(*inner.c, 1 - declared.c.a).where(~(declared.c.b == inner.c.a), declared.c["a"].in_([1, 2]))
    of_theirs = select(theirs.c.a).where(theirs.c.b > 1).subquery("inner")
    wanted = select(*of_theirs.c, 1 - theirs.c.a).where(~(theirs.c.b == of_theirs.c.a), theirs.c["a"].in_([1, 2]))
    assert str(sql.made(ours)) == str(wanted)
    assert sql.made(ours) is sql.made(ours)
    assert declared.c.keys() == theirs.c.keys()


def test_usual_work_loads_no_sqlalchemy(compiled_texts, real_device):
    done = subprocess.run(
        [sys.executable, "-c", WORK.format(device=real_device.path)],
        env=os.environ | {"PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
