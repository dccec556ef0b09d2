"""For how many consumers a message of a queue for several still stands: it goes with the last of its places.

A message that came with one place has no row here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qmstorage.schema import share
from qmstorage.sql import delete, select, update
from qmstorage.statements import given, insert_into
from qmstorage.unit_part import StorePart

_OF_MESSAGE = given(share.c.message_id, "of_message")
_ADD: Final = insert_into(share)
_LEFT: Final = select(share.c.places).where(_OF_MESSAGE)
_LESS: Final = update(share).where(_OF_MESSAGE).values(places=share.c.places - 1)
_FORGET: Final = delete(share).where(_OF_MESSAGE)


class Shares(StorePart):
    """For how many consumers messages still stand."""

    def add(self, message_ids: Sequence[int], places: int) -> None:
        """Note with how many places messages have come, where it is more than one."""
        if places > 1:
            self.many(_ADD, [{"message_id": number, "places": places} for number in message_ids])

    def left(self, message_ids: Sequence[int]) -> dict[int, int]:
        """Return how many places these messages have left, of those which came with several."""
        found = ((number, self.one(_LEFT, of_message=number)) for number in message_ids)
        return {number: row[0] for number, row in found if row is not None}

    def part(self, message_ids: Sequence[int]) -> list[int]:
        """Count down one place of each of these messages; return those of which it was the last, in their order."""
        last = []
        for number, places in self.locked(message_ids).items():
            if places > 1:
                self.run(_LESS, of_message=number)
                continue
            if places:
                self.run(_FORGET, of_message=number)
            last.append(number)
        return last

    def locked(self, message_ids: Sequence[int]) -> dict[int, int]:
        """Return how many places each of these messages has left, 0 where it came with one; nobody changes that."""
        left = self.left(message_ids)
        return {number: left.get(number, 0) for number in message_ids}
