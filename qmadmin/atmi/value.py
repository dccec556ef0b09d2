"""Numbers of ATMI's header file that tell what they mean."""

from __future__ import annotations

from typing import Self


class Value(int):
    """A number of the header file.

    `enqueue` is what it means to tpenqueue(), `dequeue` what it means to tpdequeue(); empty if it has no meaning.
    `keyword` is the argument of `QueueSpace.enqueue` or `QueueSpace.dequeue` that does the same. The manual pages are
    made of these.
    """

    enqueue: str
    dequeue: str
    keyword: str

    def __new__(cls, number: int, *, enqueue: str = "", dequeue: str = "", keyword: str = "") -> Self:
        """Make one; it is equal to the number in everything."""
        made = super().__new__(cls, number)
        made.enqueue, made.dequeue, made.keyword = enqueue, dequeue, keyword
        return made
