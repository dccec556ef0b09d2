"""Names that all users of a database share."""

from qmstorage.postgres.keys import Kind, channel, key


def test_a_key_is_a_signed_number_of_64_bits_and_the_same_in_every_release():
    assert key("qmadmin", Kind.VOLUME, 0) == -917512091682937639
    keys = {key("qmadmin", Kind.OWNER, number) for number in range(1000)}
    assert len(keys) == 1000
    assert min(keys) < 0 < max(keys)
    assert all(-(2**63) <= each < 2**63 for each in keys)


def test_schemas_and_kinds_have_keys_of_their_own():
    assert len({key(schema, kind, 1) for schema in ("a", "b") for kind in Kind}) == 2 * len(Kind)


def test_a_channel_is_short_needs_no_quotes_and_is_the_same_in_every_release():
    assert channel("qmadmin", 7) == "qmadmin_77b37cc109c1fc5f_7"
    longest = channel("ü" * 31, 2**63 - 1)
    assert len(longest.encode()) <= 63
    assert longest.isidentifier()
    assert longest == longest.lower()


def test_each_queue_of_each_schema_has_a_channel_of_its_own():
    assert len({channel(schema, queue) for schema in ("a", "b", "a_1", "A") for queue in (1, 11)}) == 8
