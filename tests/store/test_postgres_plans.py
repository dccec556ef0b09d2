"""On PostgreSQL, each statement of the hot path touches the rows that it is about and few others.

That holds whatever the server believes about the tables: statistics of a queue table are wrong as a rule, as they were
taken when it was empty, full, or full of another queue. Each statement that the engine sends is run twice with EXPLAIN
ANALYZE where it is sent, planned for its values and for any values, and undone; then it is sent. What functions of the
schema run is told by the server's auto_explain, planned for any values on one run and for its values on another.
"""

import json
import re
from itertools import islice, product

import psycopg
import pytest
from psycopg import sql
from psycopg.pq import TransactionStatus

from qmcore import numbers
from qmcore.acts import enqueue_in_transaction
from qmcore.bulk_rows import COLUMNS, Run
from qmcore.condition_parser import parse
from qmcore.definitions import OpenSpace
from qmcore.limits import Threshold, parse_high, parse_low
from qmcore.message import EnqueueControl, State
from qmcore.purpose import Purpose
from qmcore.queue import Delivery
from qmcore.records import Place
from qmcore.times import MICROS
from qmstorage.bulk_read import FORMS, reading
from qmstorage.postgres import tables
from tests.fix_postgres import database_of
from tests.fix_store import Store, attachment_of, count_rows, make_queue
from tests.fix_storm import session_of

ROWS = 1_000
"""Messages that lie in each state of each queue, and that nobody asks for."""

FEW = 60
"""Rows that a statement about a message or a small batch may touch."""

BLOCKS = 40
"""Blocks that a statement may look at, and as many more as it has to for the rows that it touches."""

QUEUES = {
    "PLAIN": {"retries": 1, "retry_delay": 5, "out_of_order": "top,msgid"},
    "ORDERED": {"order": "priority,time,lifo"},
    "GROUPED": {"grouping": True, "retries": 3, "retry_delay": 5},
    "KEPT": {"retention": 10},
    "MOVED": {"keep_expired": True, "retries": 1},
    "MEMORY": {"delivery": Delivery.NONPERSIST, "retries": 1},
}
SELECTIONS = {
    "the first": {},
    "by corrid": {"corrid": "c"},
    "by pattern": {"corrid_like": "c%"},
    "by condition": {"condition": "priority > 10 AND header.a = 'b'"},
}
TABLES = ("message", "ready", "due", "held", "expiring", "history")


class Explaining:
    """A cursor that has each statement explained before it runs it for the first time."""

    def __init__(self, cursor):
        self._cursor = cursor
        self._seen = set()
        self.plans = []
        self.is_explaining = True

    def execute(self, text, values=None, /):
        self._explain(text, values or {})
        return self._cursor.execute(text, values)

    def executemany(self, text, rows, /):
        rows = list(rows)
        for row in rows[:1]:
            self._explain(text, row)
        return self._cursor.executemany(text, rows)

    def __getattr__(self, name):
        return getattr(self._cursor, name)

    def __iter__(self):
        return iter(self._cursor)

    def on(self, connection):
        """Explain on another connection, and keep the plans here."""
        other = Explaining(connection.cursor())
        other.plans = self.plans
        return other

    def start_again(self):
        """Explain again what was explained before: it is about another queue now."""
        self._seen.clear()

    def _explain(self, text, values):
        # Of a call there is nothing to be seen: what it runs is told by the server.
        if not self.is_explaining or text in self._seen or ".qm_" in text:
            return
        self._seen.add(text)
        names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
        numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", text).replace("%%", "%")
        self.explain(numbered, [values[name] for name in names])

    def explain(self, numbered, values):
        """Plan and run a statement, in the transaction that the cursor is in, if it is in one, and undo it."""
        arguments = sql.SQL(", ").join(map(sql.Literal, values))
        execution = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON, TIMING off) EXECUTE looking {};").format(
            sql.SQL("({})").format(arguments) if values else sql.SQL("")
        )
        is_alone = self._cursor.connection.info.transaction_status == TransactionStatus.IDLE
        with self._cursor.connection.cursor() as beside:
            execution = execution.as_string(beside)
            beside.execute(
                f"{'BEGIN; ' if is_alone else ''}SAVEPOINT looking; PREPARE looking AS {numbered};"
                f"SET LOCAL plan_cache_mode = force_custom_plan; {execution} ROLLBACK TO looking;"
                f"SET LOCAL plan_cache_mode = force_generic_plan; {execution} ROLLBACK TO looking;"
                f"RELEASE looking; DEALLOCATE looking{'; COMMIT' if is_alone else ''}".encode(),
                prepare=False,
            )
            plans = [beside.fetchone()[0][0]["Plan"] for _ in beside.results() if beside.description]
        self.plans.extend(zip([numbered] * 2, ("planned for its values", "planned for any values"), plans, strict=True))


def nodes(plan):
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def looked_at(node):
    """Return how many rows a step of a plan has looked at."""
    removed = ("Rows Removed by Filter", "Rows Removed by Index Recheck", "Rows Removed by Join Filter")
    return (node["Actual Rows"] + sum(node.get(name, 0) for name in removed)) * node["Actual Loops"]


def touched(plan):
    """Return how many rows the largest step of a plan has looked at."""
    return max(map(looked_at, nodes(plan)))


def blocks(plan):
    """Return how many blocks a plan has looked at: an index whose first columns are not asked for is read whole."""
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def is_wasteful(plan, most, dead=0):
    # What is inserted may be a large body. A row may have to be looked for in each of eight partitions.
    allowed = BLOCKS + 40 * touched(plan) + dead
    return touched(plan) > most or (plan.get("Operation") != "Insert" and blocks(plan) > allowed)


def outline(plan):
    """Return a plan in one line each step, for whoever reads of a failure."""
    return [
        " ".join(
            f"{node.get(name)}"
            for name in (
                "Node Type",
                "Index Name",
                "Relation Name",
                "Index Cond",
                "Filter",
                "Actual Rows",
                "Plan Rows",
                "Actual Loops",
            )
            if name in node
        )
        for node in nodes(plan)
    ]


class Filled:
    """A queue space with many messages in each state of each queue, and wrong statistics about them."""

    def __init__(self, store, statistics):
        self.clock = store.clock
        self.space = store.space(error_queue="ERRORS", memory=400_000_000, pages=19_000, messages=1_000_000)
        for name, definition in {**QUEUES, "ERRORS": {}}.items():
            make_queue(self.space, name, **definition)
        database, self.schema = database_of(store.path)
        self.connection = psycopg.connect(database, autocommit=True)
        for schema, table in self.connection.execute(
            "SELECT nspname, relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE relkind = 'r' AND nspname LIKE %s",
            [f"{self.schema}%"],
        ).fetchall():
            self.connection.execute(f"ALTER TABLE {schema}.{table} SET (autovacuum_enabled = off)")
        session = session_of(attachment_of(self.space).volume)
        self._count_other_queues(session.slot)
        getattr(self, f"_{statistics}")()
        self.cursor = session.cursor = Explaining(session.cursor)
        self.run_in_functions = set()
        self._listen_to(session.connection)

    def _count_other_queues(self, slot):
        """Let the session have counted messages in many other queues; the server has no statistics of that."""
        self.connection.execute(
            f"INSERT INTO {self.schema}.counter (space_id, queue_id, slot, generation, sequence, messages, pages, size,"
            " enqueued, dequeued, expired, discarded, moved)"
            " SELECT %s, 10000 + n, %s, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM generate_series(1, %s) AS n",
            [attachment_of(self.space).opened.space.id, slot, ROWS],
        )

    def _listen_to(self, connection):
        """Have the server tell the plan of each statement that a function runs."""
        connection.execute("LOAD 'auto_explain'")
        for setting in ("log_nested_statements = on", "log_analyze = on", "log_buffers = on", "log_timing = off"):
            connection.execute(f"SET auto_explain.{setting}")
        connection.execute("SET auto_explain.log_format = json")
        connection.execute("SET auto_explain.log_level = notice")
        connection.execute("SET client_min_messages = notice")
        connection.execute("SET auto_explain.log_min_duration = 0")
        connection.add_notice_handler(lambda notice: self._note(notice.message_primary))
        self.connection_of_session = connection

    def plan_for(self, mode):
        """Have the statements of functions planned for their values, or for any."""
        self.connection_of_session.execute(f"SET plan_cache_mode = {mode}")

    def _note(self, text):
        _, found, told = text.partition("plan:\n")
        if not found:
            return
        plan = json.loads(told)
        text = plan["Query Text"]
        # Values have their names in the statements of a function, and are numbered in all others.
        named = r"\b(of_\w+|place|numbers?|last_numbers|shared|swept|less|gone)\b"
        # What one function calls of another tells its statements by itself.
        if self.cursor.is_explaining and re.search(named, text) and "$1" not in text and ".qm_" not in text:
            self.run_in_functions.add(text)
            self.cursor.plans.append((text, "run in a function", plan["Plan"]))

    def _fresh(self):
        self.fill()
        self._analyze()

    def _never(self):
        self.fill()

    def _emptied(self):
        self.fill()
        self.empty()
        # A row that lives at the end keeps the pages, and with them the belief that they are empty.
        self._analyze()
        self.fill()

    def _elsewhere(self):
        self.fill(["ORDERED"])
        self._analyze()
        self.empty()
        self.fill()

    def _analyze(self):
        for schema in (self.schema, f"{self.schema}_memory"):
            for table in TABLES:
                if table != "history" or schema == self.schema:
                    self.connection.execute(f"ANALYZE {schema}.{table}")

    def empty(self):
        for schema in (self.schema, f"{self.schema}_memory"):
            for table in TABLES:
                if table != "history" or schema == self.schema:
                    self.connection.execute(f"DELETE FROM {schema}.{table}")

    def fill(self, queues=tuple(QUEUES)):
        """Put messages into the tables: ready ones that come last, ones due and expiring later, held and retained."""
        later = self.clock.now() + 10**6 * MICROS
        for name in queues:
            queue = self.space.queue(name)
            schema = f"{self.schema}_memory" if name == "MEMORY" else self.schema
            # What is held in memory and by no transaction is given back at once.
            held = ("held",) if name != "MEMORY" else ()
            for at, table in enumerate(("ready", "due", *held, *(("history",) if name == "KEPT" else ()))):
                first = (queue.space_id << 48) + (1 << 40) + ((queue.id * 10 + at) << 20)
                values = {
                    "queue": queue.id, "first": first, "rows": ROWS, "later": later,
                    "group": first if name == "GROUPED" else None,
                }  # fmt: skip
                self.connection.execute(
                    f"INSERT INTO {schema}.message (id, queue_id, order_key, priority, enqueued_at, pages, size,"
                    " urcode, appkey, corrid, type, group_id, expires_at, body) SELECT %(first)s + n, %(queue)s,"
                    " '\\xff'::bytea || int8send(%(first)s + n), 50, 0, 1, 1, 0, 0, '\\x64'::bytea || int8send(n),"
                    " 'STRING', %(group)s + mod(n, 100), %(later)s, 'x' FROM generate_series(1, %(rows)s) AS n",
                    values,
                )
                columns, form = {
                    "ready": ("queue_id, order_key, message_id, retries", "queue_id, order_key, id, 0"),
                    "due": (
                        "queue_id, available_at, message_id, order_key, retries",
                        "queue_id, %(later)s, id, order_key, 0",
                    ),
                    "held": (
                        "trans_id, message_id, queue_id, order_key, retries, pages, size, role",
                        "1 + mod(id, 10), id, queue_id, order_key, 0, 1, 1, mod(id, 3)",
                    ),
                    "history": ("queue_id, consumed_at, message_id, consumer", "queue_id, %(later)s, id, 'x'"),
                }[table]
                only = f"FROM {schema}.message WHERE id > %(first)s AND id <= %(first)s + %(rows)s"
                self.connection.execute(f"INSERT INTO {schema}.{table} ({columns}) SELECT {form} {only}", values)
                if table in ("ready", "due"):
                    self.connection.execute(
                        f"INSERT INTO {schema}.expiring SELECT queue_id, %(later)s, id {only}", values
                    )

    def refuse_waste(self, most=FEW, dead=0):
        """Fail where a statement touched more rows than that; the plans are shown.

        `dead` rows may be passed over: who has an older snapshot, as autovacuum at times, keeps them in the index.
        """
        worst = {text: (mode, plan) for text, mode, plan in self.cursor.plans if is_wasteful(plan, most, dead)}
        shown = [f"{text}\n  {mode}\n    " + "\n    ".join(outline(plan)) for text, (mode, plan) in worst.items()]
        if shown:
            pytest.fail(f"{len(shown)} statements touch too many rows:\n" + "\n".join(shown), pytrace=False)


@pytest.fixture(
    params=[("fresh", 0), ("never", 0), ("emptied", 0), ("elsewhere", 0), ("emptied", 8)],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def filled(request, database_url, clock):
    statistics, partitions = request.param
    store = Store("postgres", database_url, clock, partitions=partitions)
    made = Filled(store, statistics)
    yield made
    # What no transaction holds would be given back when the device is closed.
    made.cursor.is_explaining = False
    made.empty()
    made.connection.close()
    store.close()


def arrive(space, queue, count=9):
    space.enqueue_many(queue, ["x"] * count, EnqueueControl(corrid=b"c", headers={"a": "b"}, lifetime=10**9))


@pytest.mark.matrix
@pytest.mark.parametrize("selection", SELECTIONS)
def test_selecting_a_message_touches_few_rows(filled, selection):
    for queue in QUEUES:
        filled.cursor.start_again()
        select(filled.space, queue, SELECTIONS[selection])
    assert len(filled.cursor.plans) > 100
    filled.refuse_waste()


def select(space, queue, how):
    """Take and look at messages of a queue in all ways that there are."""
    for _ in range(3):
        arrive(space, queue)
    assert space.peek(queue, **how)
    assert space.dequeue(queue, **how)
    assert len(space.dequeue_many(queue, 2, **how)) == 2
    assert space.remove(queue, **how)
    assert space.listen([queue]) == queue
    with space.transaction():
        for _ in range(2):
            assert space.lock(queue, **how)
        assert space.dequeue(queue, **how)
        assert space.dequeue(queue)
        assert space.dequeue_many(queue, 3)
    with space.transaction() as transaction:
        assert space.dequeue_many(queue, 2, **how)
        transaction.rollback()


def test_what_goes_on_around_selecting_touches_few_rows(filled, clock, monkeypatch):
    # So that little is spilled already.
    monkeypatch.setattr(enqueue_in_transaction, "SPILL_BYTES", 2_000)
    space = filled.space
    for queue in QUEUES:
        filled.cursor.start_again()
        arrive(space, queue)
        with space.transaction():
            assert space.dequeue(queue, msgid=space.peek(queue).msgid)
            for _ in range(2):
                space.enqueue(queue, b"x", delay=3)
            space.enqueue(queue, b"x" * 2_000)
        with space.transaction() as transaction:
            space.enqueue(queue, b"x" * 2_000)
            transaction.rollback()
        # At times of their own, as messages have which were not sent together.
        for at in range(9):
            space.enqueue(queue, b"x", delay=1 + at / 100, expires_in=9 + at / 10)
        clock.advance(6)
        assert space.dequeue(queue)
        clock.advance(20)
        assert space.dequeue(queue)
        space.enqueue(queue, bytes(1_100_000))
    first = space.enqueue("PLAIN", b"x", top=True)
    space.enqueue("PLAIN", b"x", before=first)
    space.enqueue("PLAIN", b"x", before=first, persistent=False)
    msgid = space.enqueue("KEPT", b"x", priority=99)
    assert space.dequeue("KEPT", msgid=msgid)
    assert space.recall("KEPT", msgid)
    clock.advance(20)
    assert space.dequeue("KEPT", corrid="none") is None
    assert space.recall("KEPT", msgid) is None
    assert len(filled.cursor.plans) > 150
    filled.refuse_waste()
    assert space.usage("PLAIN").expired


@pytest.mark.matrix
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
def test_what_the_functions_run_touches_few_rows(filled, mode, monkeypatch):
    space = filled.space
    filled.plan_for(mode)
    make_queue(space, "CALLING", threshold=Threshold(parse_high("5000m"), parse_low("1m", parse_high("5000m")), "true"))
    space.enqueue("CALLING", b"x")
    for queue in QUEUES:
        space.enqueue(queue, b"x", corrid="c", priority=99, expires_in=100)
        space.enqueue(queue, b"x", delay=100)
        space.enqueue_many(queue, [b"x"] * 20)
        space.enqueue_many(queue, [b"x"] * 3, EnqueueControl(delay=100 * MICROS, lifetime=200 * MICROS))
        with space.transaction():
            space.enqueue(queue, b"x")
    first = space.enqueue("PLAIN", b"x", top=True)
    space.enqueue("PLAIN", b"x", before=first)
    space.enqueue("PLAIN", b"x", before=first, persistent=False)
    for queue in QUEUES:
        assert space.dequeue(queue).body == b"x"
        assert len(space.dequeue_many(queue, 3, corrid="c")) <= 3
        with space.transaction():
            space.enqueue(queue, space.dequeue(queue).body)
    # As where the queue space has no memory: the function looks for the first messages by itself.
    guard = OpenSpace.guard
    monkeypatch.setattr(OpenSpace, "guard", lambda its, known: guard(its, known)._replace(memory_pages=0))
    for queue in ("PLAIN", "ORDERED", "KEPT"):
        assert space.dequeue(queue).body == b"x"
        assert len(space.dequeue_many(queue, 3)) == 3
        with space.transaction():
            taken = space.dequeue_many(queue, 2)
            space.enqueue(queue, space.dequeue(queue).body)
            space.enqueue("ERRORS", taken[0].body)
    assert len(filled.run_in_functions) > 30
    filled.refuse_waste()


def fill_shares(filled, queue):
    """Put messages of a queue for several there that each consumer but the last is done with."""
    *done, last = [filled.space.queue(f"{queue.name}:{each.name}") for each in filled.space.subscriptions(queue.name)]
    first = (queue.space_id << 48) + (1 << 40) + ((queue.id * 10) << 20)
    values = {"queue": queue.id, "last": last.id, "first": first, "rows": ROWS}
    only, number = "FROM generate_series(1, %(rows)s) AS n", "%(first)s + n"
    key = f"'\\xff'::bytea || int8send({number})"
    for statement in (
        "message (id, queue_id, order_key, priority, enqueued_at, pages, size, urcode, appkey, type, body)"  # noqa: ISC004
        f" SELECT {number}, %(queue)s, {key}, 50, 0, 1, 1, 0, 0, 'STRING', 'x'",
        f"ready (queue_id, order_key, message_id, retries) SELECT %(last)s, {key}, {number}, 0",
        f"share (message_id, places) SELECT {number}, {len(done) + 1}",
        *(f"spent (message_id, consumer_id, how, at) SELECT {number}, {each.id}, 0, 0" for each in done),
    ):
        filled.connection.execute(f"INSERT INTO {filled.schema}.{statement} {only}", values)


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("statistics", ["fresh", "never"])
def test_consumers_and_sweeps_touch_few_rows(filled, mode, statistics, clock, monkeypatch):
    monkeypatch.setattr("qmcore.acts.sweeping.STEP", 20)
    space, names = filled.space, ("one", "two", "three")
    queue = make_queue(space, "SEVERAL", multiple_consumers=True, retries=1)
    for name in names:
        space.subscribe("SEVERAL", name)
    fill_shares(filled, queue)
    if statistics == "fresh":
        for table in ("share", "spent", "message", "ready"):
            filled.connection.execute(f"ANALYZE {filled.schema}.{table}")
    filled.plan_for(mode)
    # As where the queue space has no memory: the function looks for the first messages by itself.
    guard = OpenSpace.guard
    monkeypatch.setattr(OpenSpace, "guard", lambda its, known: guard(its, known)._replace(memory_pages=0))
    space.enqueue("SEVERAL", b"x")
    space.enqueue("SEVERAL", b"x", corrid="c", expires_in=50)
    space.enqueue("SEVERAL", b"x", delay=20, expires_in=50)
    arrive(space, "SEVERAL", 20)
    for name in names:
        assert space.dequeue("SEVERAL", consumer=name, corrid="c").body == b"x"
        assert space.dequeue("SEVERAL", consumer=name).body == b"x"
        assert len(space.dequeue_many("SEVERAL", 3, consumer=name)) == 3
        with space.transaction():
            space.enqueue("SEVERAL", space.dequeue("SEVERAL", consumer=name).body)
        with space.transaction() as transaction:
            assert len(space.dequeue_many("SEVERAL", 2, consumer=name)) == 2
            transaction.rollback()
    clock.advance(30)
    assert space.dequeue("SEVERAL:one")
    clock.advance(30)
    assert space.dequeue("SEVERAL:one")
    assert space.usage("SEVERAL").expired == 1
    assert count_rows(space, "spent")[0] < ROWS
    assert len(filled.run_in_functions) > 15
    filled.refuse_waste(dead=len(names) * ROWS)


def test_listing_touches_no_more_than_it_lists(filled):
    space = filled.space
    for queue in QUEUES:
        filled.cursor.start_again()
        assert len(list(islice(space.messages(queue), 600))) == 600
        assert len(list(islice(space.messages(queue, condition="priority > 10"), 600))) == 600
    assert len(list(islice(space.history("KEPT"), 600))) == 600
    filled.refuse_waste(most=600)


def test_the_figures_of_queues_are_counted_through_keys_and_look_up_one_message_for_each_level(filled):
    for look, arguments, counted in (("usages", [], len(QUEUES) + 1), ("usage", ["PLAIN"], 1)):
        getattr(filled.space, look)(*arguments)
        filled.cursor.start_again()
        filled.cursor.plans.clear()
        getattr(filled.space, look)(*arguments)
        figures = [
            (text, mode, plan) for text, mode, plan in filled.cursor.plans if "counter" in text and "ready" in text
        ]
        assert len(figures) == 4, "the first of each level, on disk and in memory, each planned in two ways"
        for _, _, plan in figures:
            assert sum(looked_at(node) for node in nodes(plan) if re.match("ready|message", relation(node))) <= FEW
        # Those that are kept back and those that are held are counted one by one, the former in two conditions.
        filled.refuse_waste(most=counted * ROWS)


def test_the_last_of_those_given_back_is_found_without_those_that_were_delayed(filled):
    space = filled.space
    for queue in ("PLAIN", "MEMORY"):
        filled.cursor.start_again()
        assert space.given_back_until(queue) is None
        with space.transaction() as transaction:
            assert space.dequeue(queue)
            transaction.rollback(retry_after=60)
        filled.cursor.start_again()
        assert space.given_back_until(queue) == filled.clock.now() + 60 * MICROS
    asked = [text for text, _, _ in filled.cursor.plans if "given_back" in text and text.startswith("SELECT")]
    assert len(asked) == 16, "twice for each queue, on disk and in memory, each planned in two ways"
    filled.refuse_waste()


def relation(node):
    return node.get("Relation Name", "")


def test_reading_in_bulk_touches_no_more_than_it_reads(filled, monkeypatch):
    volume, known = attachment_of(filled.space).volume, attachment_of(filled.space).opened.space
    condition = parse("priority > 10")
    queues = [filled.space.queue(name) for name in ("PLAIN", "KEPT", "MEMORY")]

    def explaining(cursor, *how, **named):
        filled.cursor = Explaining(cursor)
        return unit_on(filled.cursor, *how, **named)

    unit_on = volume.unit_on
    monkeypatch.setattr(volume, "unit_on", explaining)

    def read(unit):
        for queue, state, chosen in product(queues, State, (None, condition)):
            memory = queue.name == "MEMORY"
            store = unit.memory(known.id) if memory else unit
            filled.cursor.start_again()
            tallied = store.bulk_read.tally(queue.id, state).messages
            places = store.bulk_read.boundaries(known, queue, state, 300, chosen)
            assert sum(count for _, count in places) == tallied
            if tallied:
                (after, _), (until, count), *_ = places
                run = Run(queue.name, state, memory, after, until, count)
                assert sum(map(len, store.bulk_read.rows(known, queue, run, chosen))) == 300
                # A cursor of the server plans what it is declared for in the same way.
                statement = reading(FORMS[state], chosen, known, body_max=4096, bounded=True)
                first, last = ({"first": after[0], "second": after[1]}, {"last": until[0], "last_second": until[1]})
                with store.bulk_read._led_by_keys():
                    assert len(store.built(statement, **first, **last, of_queue=queue.id)) == 300
        return filled.cursor.execute("SELECT current_setting('enable_seqscan')").fetchone()[0]

    def refuse_waste():
        assert len(filled.cursor.plans) > 100
        filled.refuse_waste(most=ROWS)

    assert volume.read(read) == "off"
    refuse_waste()
    with volume.snapshot(memory=[known.name]) as snapshot:
        # A snapshot may be used for what looks at everything, too.
        assert snapshot.read(read) == "on"
    refuse_waste()


def test_removing_many_messages_touches_no_more_than_them(filled):
    volume, known = attachment_of(filled.space).volume, attachment_of(filled.space).opened.space
    queues = [filled.space.queue(name) for name in ("PLAIN", "KEPT", "MEMORY")]

    def store_of(unit, queue):
        return unit.memory(known.id) if queue.name == "MEMORY" else unit

    def read(unit, queue, state):
        store = store_of(unit, queue)
        (until, count), *_ = store.bulk_read.boundaries(known, queue, state, 300)
        run = Run(queue.name, state, store is not unit, None, until, count)
        rows = [row for batch in store.bulk_read.rows(known, queue, run, body=False) for row in batch]
        number, key, retries = (COLUMNS.index(name) for name in ("sequence", "order_key", "retries"))
        return [Place(numbers.number(known.id, row[number]), queue.id, row[key], row[retries]) for row in rows]

    for queue, state in product(queues, (State.READY, State.DELAYED)):
        places = volume.read(lambda unit, queue=queue, state=state: read(unit, queue, state))
        filled.cursor.start_again()
        filled.cursor.plans.clear()
        gone = volume.write(
            lambda unit, queue=queue, places=places: store_of(unit, queue).bulk_load.remove_unchanged(queue.id, places),
            Purpose.ADMINISTRATION,
        )
        assert gone.messages == 300
        filled.refuse_waste(most=300)


def test_to_ask_for_the_generations_does_not_read_all_counters(filled):
    volume = attachment_of(filled.space).volume
    filled.connection.execute(
        f"INSERT INTO {filled.schema}.counter SELECT 1, 100 + n / 20, n %% 20 + 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0"
        " FROM generate_series(1, %s) AS n",
        [20 * ROWS],
    )
    with volume.session(fresh=False) as session:
        ((plan,),) = session.connection.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {tables.generations(volume.address.schema)}"
        ).fetchall()
    assert blocks(plan[0]["Plan"]) <= BLOCKS, outline(plan[0]["Plan"])
