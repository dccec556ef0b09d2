"""Rows become batches of columns, and the same rows again."""

import hypothesis
import pytest
from hypothesis import strategies as st

from qmadmin.archive.columns import BY_NAME, COLUMNS, ArchiveColumn, ColumnType
from qmadmin.archive.rows import BATCH_BYTES_MAX, _values, batch_of, pa, rows_of, schema
from qmcore import bulk_rows
from qmcore.errors import InvalidArgumentError, SystemFailureError
from qmcore.message import State
from tests.fix_archive import FULL, GROUPS, msgid, row

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = {
    ColumnType.TEXT: TEXT,
    ColumnType.BYTES: st.binary(max_size=12),
    ColumnType.INT16: st.integers(-(2**15), 2**15 - 1),
    ColumnType.INT32: st.integers(-(2**31), 2**31 - 1),
    ColumnType.INT64: INT64,
    ColumnType.TIME: INT64,
}


def column(declared):
    """Return values of one column: some of them none."""
    values = st.one_of(
        VALUES[declared.kind], st.just(b"" if declared.kind is ColumnType.BYTES else None) | VALUES[declared.kind]
    )
    if declared.required:
        return VALUES[declared.kind]
    return st.none() | values


@st.composite
def many_rows(draw):
    count = draw(st.integers(1, 20))
    made = {}
    for declared in COLUMNS:
        if declared.carried:
            one = column(declared)
            alike = draw(st.booleans())
            made[declared.carried] = (
                [draw(one)] * count if alike else draw(st.lists(one, min_size=count, max_size=count))
            )
    made["sequence"] = [number % 2**48 for number in made["sequence"]]
    made["group_sequence"] = [number and number % 2**48 for number in made["group_sequence"]]
    made["size"] = [len(body or b"") for body in made["body"]]
    return [tuple(made[name][at] for name in bulk_rows.COLUMNS) for at in range(count)]


@hypothesis.settings(max_examples=25)
@hypothesis.given(many_rows(), st.sampled_from([State.READY, State.DELAYED, State.CONSUMED]), st.booleans())
def test_rows_come_back_as_they_were(rows, state, memory):
    batch = batch_of("QSPACE", "Q ü", state, memory, rows, msgid("QSPACE"))
    batch.validate(full=True)
    assert rows_of(batch) == [(("QSPACE", "Q ü", state, memory), rows)]
    half = len(rows) // 2
    parts = [batch.slice(0, half), batch.slice(half)]
    assert [row for part in parts for _, found in rows_of(part) for row in found] == rows


def test_rows_of_several_queues_come_back_in_their_runs():
    groups = [group for groups in GROUPS.values() for group in groups]
    batches = [batch_of(*group, msgid(group[0])) for group in groups]
    together = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    assert rows_of(together) == [(group[:4], group[4]) for group in groups]


def test_values_of_the_same_letters_but_other_lengths_are_not_taken_for_the_same():
    batches = [batch_of("S", name, State.READY, False, [row(1)], msgid("S")) for name in ("aa", "a", "aaa")]
    together = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    assert [queue for (_, queue, *_), _ in rows_of(together)] == ["aa", "a", "aaa"]


def test_a_batch_has_the_schema_of_a_part():
    batch = batch_of("S", "Q", State.READY, False, [row(1), row(2, **FULL)], msgid("S"))
    assert batch.schema.equals(schema())
    assert batch.schema.names == [column.name for column in COLUMNS]


def test_bodies_may_be_views_of_bytes():
    views = [row(1, body=memoryview(b"abc")), row(2, body=memoryview(b""))]
    batch = batch_of("S", "Q", State.READY, False, views, msgid("S"))
    assert [found[bulk_rows.BODY] for found in rows_of(batch)[0][1]] == [b"abc", b""]


def test_all_that_is_carried_of_a_message_has_a_column():
    assert {column.carried for column in COLUMNS if column.carried} == set(bulk_rows.COLUMNS)
    assert len(BY_NAME) == len(COLUMNS)


def test_what_is_held_has_no_place_in_an_archive():
    with pytest.raises(InvalidArgumentError, match="a message that is held cannot be in an archive"):
        batch_of("S", "Q", State.HELD, False, [row(1)], msgid("S"))


def test_bodies_that_are_too_long_together_for_one_batch_are_refused():
    large = list(row(1))
    large[bulk_rows.SIZE] = BATCH_BYTES_MAX
    with pytest.raises(InvalidArgumentError, match="bodies of one batch"):
        batch_of("S", "Q", State.READY, False, [tuple(large), row(2, body=b"x")], msgid("S"))


def test_no_rows_are_no_groups():
    batch = batch_of("S", "Q", State.READY, False, [row(1)], msgid("S"))
    assert rows_of(batch.slice(0, 0)) == []


def test_a_state_that_nobody_knows_is_refused():
    batch = batch_of("S", "Q", State.READY, False, [row(1)], msgid("S"))
    strange = batch.set_column(batch.schema.get_field_index("state"), "state", pa.array(["lost"]))
    with pytest.raises(SystemFailureError, match="unknown state 'lost'"):
        rows_of(strange)


def test_columns_of_a_later_minor_version_are_left_out_wherever_they_stand():
    batch = batch_of("S", "Q", State.READY, False, [row(1, **FULL)], msgid("S"))
    columns = [pa.array(["?"]), *reversed(batch.columns)]
    strange = pa.RecordBatch.from_arrays(columns, names=["later", *reversed(batch.schema.names)])
    assert rows_of(strange) == rows_of(batch)


def test_a_column_that_an_archive_is_too_old_for_has_no_values():
    batch = batch_of("S", "Q", State.READY, False, [row(1), row(2)], msgid("S"))
    assert _values(batch, ArchiveColumn("later", ColumnType.TEXT, "", carried="later", since=1)) == [None, None]
