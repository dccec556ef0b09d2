"""A transactional outbox and inbox: messages that stand or fall with the tables of an application.

    outbox.py DEVICE

The device is made, and must not be there yet: a file, or the URL of a schema in a PostgreSQL database. The tables of
the application are made in the same file, or the same database, and dropped in the end with the queue space.

The shop records an order and sends a message about it in one transaction of its own (the outbox): where the order is
refused, there is no message. The office takes the message and records the bill in one transaction (the inbox): where
that fails, the message is back, and neither of them is there twice.
"""

from __future__ import annotations

import argparse
import sys

import sqlalchemy as sa
from sqlalchemy import event, exc

import qmadmin

SPACE, QUEUE, ERRORS = "SHOP", "ORDERS", "ERRORS"

tables = sa.MetaData()
order = sa.Table(
    "shop_order",
    tables,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("amount", sa.Integer, nullable=False),
)
bill = sa.Table(
    "shop_bill",
    tables,
    sa.Column("order_number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("amount", sa.Integer, nullable=False),
)


def main() -> int:
    """Show the outbox, the inbox, and what a failure leaves of either."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", metavar="DEVICE")
    place = parser.parse_args().device
    engine = sa.create_engine(engine_url(place), isolation_level="READ COMMITTED" if "://" in place else "SERIALIZABLE")
    make_durable(engine)
    try:
        with qmadmin.create_device(place, 2000) as device:
            lay_out(device)
            tables.create_all(engine)
            try:
                with device.open_space(SPACE) as space:
                    show(engine, space)
            finally:
                tables.drop_all(engine)
            device.destroy_space(SPACE)
    finally:
        engine.dispose()
    return 0


def place_order(engine: sa.Engine, space: qmadmin.QueueSpace, number: int, amount: int) -> None:
    """The outbox: the order and the message about it are there together, or neither of them is."""
    with engine.begin() as connection:
        space.enqueue(QUEUE, f"{number} {amount}", corrid=f"order {number}", connection=connection)
        connection.execute(order.insert().values(number=number, amount=amount))


def bill_order(engine: sa.Engine, space: qmadmin.QueueSpace, *, power_fails: bool = False) -> None:
    """The inbox: the message is gone and the bill is there together, or neither of them is so."""
    with engine.begin() as connection:
        message = space.dequeue(QUEUE, connection=connection)
        if message is None:
            raise LookupError("there is no order")
        number, amount = map(int, message.text.split())
        connection.execute(bill.insert().values(order_number=number, amount=amount))
        if power_fails:
            raise KeyboardInterrupt


def show(engine: sa.Engine, space: qmadmin.QueueSpace) -> None:
    """Go through it."""
    place_order(engine, space, 1, 100)
    tell("an order was placed", engine, space)
    try:
        place_order(engine, space, 1, 999)
    except exc.IntegrityError:
        tell("the same order was refused", engine, space)
    try:
        bill_order(engine, space, power_fails=True)
    except KeyboardInterrupt:
        tell("its bill was cut short", engine, space)
    bill_order(engine, space)
    tell("it was billed", engine, space)


def tell(what: str, engine: sa.Engine, space: qmadmin.QueueSpace) -> None:
    """Print what there is."""
    with engine.connect() as connection:
        counts = [connection.scalar(sa.select(sa.func.count()).select_from(table)) for table in (order, bill)]
    print(f"{what}: orders {counts[0]}, messages {space.usage(QUEUE).messages}, bills {counts[1]}")


def lay_out(device: qmadmin.Device) -> None:
    """Make the queue space and its queues."""
    device.create_space(
        qmadmin.SpaceDefinition(
            name=SPACE,
            ipc_key=40000,
            pages=500,
            queues=2,
            transactions=5,
            processes=5,
            messages=100,
            error_queue=ERRORS,
        )
    )
    with device.open_space(SPACE) as space:
        for name in (QUEUE, ERRORS):
            space.create_queue(qmadmin.QueueDefinition(name=name, retries=3))


def engine_url(place: str) -> str:
    """Return what SQLAlchemy calls the database of a device."""
    if "://" not in place:
        return f"sqlite:///{place}"
    base, _, parameters = place.partition("?")
    kept = "&".join(pair for pair in parameters.split("&") if pair and not pair.startswith("schema="))
    url = f"postgresql+psycopg://{base.partition('://')[2]}"
    return f"{url}?{kept}" if kept else url


def make_durable(engine: sa.Engine) -> None:
    """Have SQLite bring each commit to the disk; PostgreSQL does so by default."""
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def _(connection: object, _record: object) -> None:
            connection.execute("PRAGMA synchronous=FULL")  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main())
