"""Message identifiers of other queue spaces that stay valid: wherever one can be given, and wherever one is shown."""

from qmcore.carried import Adopted
from qmcore.message import message_id

FOREIGN = "f0e1d2c3b4a59687"
SHIFT = 1_000


def adopt(space, *pieces):
    """Let the queue space adopt identifiers, as the end of an import does."""
    attachment = space._attachment
    for piece in pieces:
        attachment.volume.write(lambda unit, piece=piece: unit.adopt(attachment.opened.space.id, piece))


def number_of(msgid):
    return int(msgid[16:], 16)


def as_if_imported(space, *msgids, foreign=FOREIGN, to=SHIFT):
    """Let messages that are there have come with an import, and return the identifiers that they have by that."""
    own = [number_of(msgid) for msgid in msgids]
    adopt(space, *(Adopted(foreign, number + to, number + to, -to) for number in own))
    return [message_id(foreign, number + to) for number in own]


def definitions(space):
    attachment = space._attachment
    return attachment.volume.read(attachment.opened.definitions)


def test_a_queue_space_is_read_with_what_it_has_adopted(space, store):
    pieces = [Adopted(FOREIGN, 1, 5, 100), Adopted(FOREIGN, 1, 5, 200), Adopted("0" * 16, 3, 4, 300)]
    before = definitions(space)
    adopt(space, *pieces)
    after = definitions(space)
    assert after.generation != before.generation
    assert set(after.space.adopted) == set(pieces)
    other = store.space("OTHER", ipc_key=41_000)
    volume = space._attachment.volume
    assert {one.name: len(one.adopted) for one in volume.read(lambda unit: unit.spaces())} == {"SPACE": 3, "OTHER": 0}
    assert definitions(other).space.adopted == ()


def test_a_destroyed_queue_space_leaves_none_behind_for_the_next_of_its_number(space, store):
    adopt(space, Adopted(FOREIGN, 1, 5, 100))
    space.close()
    store.device.destroy_space("SPACE")
    assert definitions(store.space()).space.adopted == ()
