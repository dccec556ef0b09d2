"""The ways in that go by without asking a rule planted in the engine, and on which stores; they only get fewer."""

from typing import Final

ESCAPES: Final[dict[str, tuple[str, ...]]] = {
    "commit_with_a_reply": ("file", "memory", "postgres"),
    "commit": ("file", "memory", "postgres"),
    "commit_with_a_large_reply": ("file", "memory", "postgres"),
    "commit_in_the_step_that_takes_the_next": ("file", "memory", "postgres"),
    "tpcommit": ("file", "postgres"),
    "commit_of_the_forwarder": ("file",),
}
