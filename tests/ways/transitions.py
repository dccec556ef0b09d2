"""Which transitions of messages each way in makes: the public API, ATMI, the shell, the MIB, and the programs.

What makes none says so. `test_listed.py` holds this against the code: what is public and is not listed here fails.
"""

from __future__ import annotations

import enum
from typing import Final


class Transition(enum.Flag):
    """What happens to a message."""

    NONE = 0
    ARRIVE = enum.auto()
    CLAIM = enum.auto()
    """It is consumed at once, or held by a transaction."""
    SETTLE = enum.auto()
    """A transaction that holds it, or has enqueued it, ends, or gives it back and goes on."""
    MOVE = enum.auto()
    """It goes to another queue, or gets other terms in its own."""
    RELEASE = enum.auto()
    """It becomes available, or expires, or its retention is over."""
    FORGET = enum.auto()
    """It goes without being consumed."""


NONE, ARRIVE, CLAIM, SETTLE, MOVE, RELEASE, FORGET = (
    Transition.NONE,
    Transition.ARRIVE,
    Transition.CLAIM,
    Transition.SETTLE,
    Transition.MOVE,
    Transition.RELEASE,
    Transition.FORGET,
)
# What is looked at has been released before.
LOOK = RELEASE

FUNCTIONS: Final = {
    "create_decision_table": NONE,
    "create_device": NONE,
    "decode": NONE,
    "open_device": NONE,
    "outcome": SETTLE,
    "recover": SETTLE | ARRIVE,
    "restore_device": NONE,
    "transaction": NONE,
}

DEVICE: Final = {
    "attached": NONE,
    "attachment": NONE,
    "audit": NONE,
    "audit_outcome": NONE,
    "audited": NONE,
    "backup": NONE,
    "change_space": FORGET,
    "check": NONE,
    "clear_memory": SETTLE | FORGET,
    "close": SETTLE,
    "comes_free": NONE,
    "command_refusal": NONE,
    "create_entry": NONE,
    "create_space": NONE,
    "decisions": NONE,
    "destroy_space": FORGET,
    "drop": SETTLE,
    "entries": NONE,
    "extend_space": NONE,
    "forwardings": NONE,
    "free_ranges": NONE,
    "is_there": NONE,
    "left_messages": NONE,
    "loss_by_rename": NONE,
    "memory_files": NONE,
    "missing_volume_of": NONE,
    "missing_volumes": NONE,
    "open_space": SETTLE | LOOK,
    "places": NONE,
    "queue_usages": LOOK,
    "queues": NONE,
    "refusal": NONE,
    "refuse_readonly": NONE,
    "refuse_space": NONE,
    "remove_entry": NONE,
    "rename_entry": NONE,
    "runs_commands": NONE,
    "set_commands": NONE,
    "space": NONE,
    "space_usage": NONE,
    "spaces": NONE,
    "table_of_contents": NONE,
    "take_back_space": NONE,
    "tidy_space": SETTLE | LOOK,
    "transaction": NONE,
    "transactions": NONE,
    "use": NONE,
    "volume_of": NONE,
    "volume_of_space": NONE,
    "warn_of_commands": NONE,
}

SPACE: Final = {
    "abort_transaction": SETTLE,
    "browse": LOOK,
    "change_availability": MOVE,
    "change_expiry": MOVE,
    "change_priority": MOVE,
    "change_queue": FORGET,
    "change_schedule": NONE,
    "change_subscription": NONE,
    "close": SETTLE,
    "commit_transaction": SETTLE | ARRIVE,
    "content": NONE,
    "count": LOOK,
    "create_queue": NONE,
    "create_schedule": NONE,
    "decisions": NONE,
    "delete_schedule": NONE,
    "consume": ARRIVE | CLAIM | LOOK | SETTLE,
    "dequeue": CLAIM | LOOK,
    "dequeue_many": CLAIM | LOOK,
    "destroy_queue": FORGET,
    "enqueue": ARRIVE,
    "enqueue_many": ARRIVE,
    "forwardings": NONE,
    "given_back_until": LOOK,
    "history": LOOK,
    "listen": LOOK,
    "lock": CLAIM | LOOK,
    "messages": LOOK,
    "move": MOVE,
    "pause_schedule": NONE,
    "peek": LOOK,
    "purge": FORGET,
    "purge_damaged": FORGET,
    "purge_history": FORGET,
    "put": ARRIVE,
    "put_many": ARRIVE,
    "queue": NONE,
    "queues": NONE,
    "recall": NONE,
    "refuse_held": LOOK,
    "refuse_end": LOOK,
    "remove": CLAIM | LOOK,
    "report_forwarding": NONE,
    "requeue": MOVE,
    # What processes that died have left is ended first.
    "resume": SETTLE,
    "resume_schedule": NONE,
    "schedule": NONE,
    "schedules": NONE,
    "start_queue": NONE,
    "stop_queue": NONE,
    "subscribe": NONE,
    "subscriptions": NONE,
    "transaction": NONE,
    "tpc_begin": NONE,
    "tpc_commit": SETTLE | ARRIVE,
    "tpc_forget": NONE,
    "tpc_prepare": SETTLE,
    "tpc_recover": NONE,
    "tpc_resume": SETTLE,
    "tpc_rollback": SETTLE,
    "tpc_suspend": NONE,
    "transactions": NONE,
    "unpark": MOVE,
    "unsubscribe": FORGET,
    "usage": LOOK,
    "usages": LOOK,
    "wake": NONE,
    "watch": LOOK,
    "xid": NONE,
}

TRANSACTION: Final = {
    "answer_failure": SETTLE | ARRIVE,
    "branch": NONE,
    "commit": SETTLE | ARRIVE,
    "commit_and_take": SETTLE | ARRIVE | CLAIM,
    "connection": NONE,
    "forget_since": NONE,
    "give_back": SETTLE,
    "give_up": SETTLE,
    "join_context": NONE,
    "leave_context": NONE,
    "marks": NONE,
    "note": NONE,
    "remaining": NONE,
    "return_untried": SETTLE,
    "rollback": SETTLE,
    "successor": NONE,
    "suspend": NONE,
    "take_over": SETTLE,
    "wait_until_complete": SETTLE | ARRIVE,
}

ATMI: Final = {
    "tpabort": SETTLE,
    "tpbegin": NONE,
    "tpcommit": SETTLE | ARRIVE,
    "tpdequeue": CLAIM | LOOK,
    "tpenqueue": ARRIVE,
    "tpgetlev": NONE,
    "tpinit": NONE,
    "tpresume": SETTLE,
    "tpscmt": NONE,
    "tpsprio": NONE,
    "tpsuspend": NONE,
    "tpterm": SETTLE,
}

COMMANDS: Final = {
    "!": NONE,
    "!!": NONE,
    "#": NONE,
    "chdl": NONE,
    "crdl": NONE,
    "dsdl": NONE,
    "echo": NONE,
    "format": NONE,
    "help": NONE,
    "ipcrm": SETTLE | FORGET,
    "ipcs": NONE,
    "lidl": NONE,
    "livtoc": NONE,
    "paginate": NONE,
    "qaborttrans": SETTLE,
    "qaddext": NONE,
    "qaudit": NONE,
    "qbackup": NONE,
    "qchange": FORGET,
    "qchangeexptime": MOVE,
    "qchangeprio": MOVE,
    "qchangequeue": MOVE,
    "qchangetime": MOVE,
    "qcheck": FORGET,
    "qclose": NONE,
    "qcommands": NONE,
    "qcommittrans": SETTLE | ARRIVE,
    "qcreate": NONE,
    "qdeletemsg": FORGET,
    "qdestroy": FORGET,
    "qexport": NONE,
    "qforgettrans": NONE,
    "qget": CLAIM | LOOK,
    "qimport": ARRIVE,
    "qinfo": LOOK,
    "qlist": LOOK,
    "qopen": NONE,
    "qpeek": LOOK,
    "qprinttrans": NONE,
    "qpurge": FORGET,
    "qput": ARRIVE,
    "qrequeue": MOVE,
    "qrestore": NONE,
    "qscan": NONE,
    "qschedule": NONE,
    "qschedulechange": NONE,
    "qschedulecreate": NONE,
    "qscheduledelete": NONE,
    "qschedulepause": NONE,
    "qscheduleresume": NONE,
    "qset": NONE,
    "qsize": NONE,
    "qspacechange": NONE,
    "qspacecreate": NONE,
    "qspacedestroy": FORGET,
    "qspacelist": NONE,
    "qstart": NONE,
    "qstat": LOOK,
    "qstop": NONE,
    "qsubchange": NONE,
    "qsublist": LOOK,
    "qsubscribe": NONE,
    "qtop": LOOK,
    "qunpark": MOVE,
    "qunsubscribe": FORGET,
    "quit": NONE,
    "source": NONE,
    "verbose": NONE,
    # What the command makes that is watched.
    "watch": NONE,
}

MIB: Final = {
    "T_APPQ": FORGET | LOOK,
    "T_APPQMSG": MOVE | FORGET | LOOK,
    "T_APPQSPACE": SETTLE | FORGET,
    "T_APPQTRANS": SETTLE | ARRIVE,
}

PROGRAMS: Final = {
    # What its commands make.
    "qmadmin": ARRIVE | CLAIM | SETTLE | MOVE | RELEASE | FORGET,
    "qmspark": ARRIVE | FORGET,
    "tmqforward": ARRIVE | CLAIM | SETTLE | RELEASE,
}

QMSPARK: Final = {
    "export": NONE,
    "import": ARRIVE | FORGET,
    "query": NONE,
    "show": NONE,
    "verify": NONE,
}
