"""Messages and rows in one transaction of the package `transaction`, as Zope and Pyramid have it.

    zope_orders.py DEVICE DATABASE

The device is made, and must not be there yet: a file, or the URL of a schema in a PostgreSQL database. DATABASE is the
file of an SQLite database, another one: that of the application, whose session zope.sqlalchemy has registered.

The office takes a message about an order, records the bill, and sends a message to the shipping department. All of it
is committed together, or nothing of it, also where the program is killed at any moment: the queue space promises its
part, and the commit of the session, which contains the decision, ends both.
"""

from __future__ import annotations

import argparse
import sys

import sqlalchemy as sa
import transaction
from sqlalchemy import exc, orm
from zope.sqlalchemy import register

import qmadmin
from qmadmin.zope import join

SPACE, ORDERS, SHIPPING, ERRORS = "SHOP", "ORDERS", "SHIPPING", "ERRORS"


class Base(orm.DeclarativeBase):
    """The tables of the application."""


class Bill(Base):
    """A bill; an order has one."""

    __tablename__ = "shop_bill"

    order_number: orm.Mapped[int] = orm.mapped_column(primary_key=True, autoincrement=False)
    amount: orm.Mapped[int]


class Office:
    """What works with the session and the queue space."""

    def __init__(self, session: orm.Session, space: qmadmin.QueueSpace) -> None:
        register(session)
        self.session, self.space = session, space

    def place(self, number: int, amount: int) -> None:
        """Send a message about an order; the queue space takes part alone."""
        with transaction.manager:
            join(self.space)
            self.space.enqueue(ORDERS, f"{number} {amount}")

    def bill(self, *, power_fails: bool = False) -> None:
        """Take the message, record the bill and have the order shipped: all of it, or nothing."""
        with transaction.manager:
            join(self.space, session=self.session)
            message = self.space.dequeue(ORDERS)
            if message is None:
                raise LookupError("there is no order")
            number, amount = map(int, message.text.split())
            self.session.add(Bill(order_number=number, amount=amount))
            self.space.enqueue(SHIPPING, f"ship {number}")
            if power_fails:
                raise KeyboardInterrupt

    def tell(self, what: str) -> None:
        """Print what there is."""
        with transaction.manager:
            bills = self.session.scalar(sa.select(sa.func.count()).select_from(Bill))
        orders, shipping = (self.space.usage(queue).messages for queue in (ORDERS, SHIPPING))
        print(f"{what}: orders {orders}, bills {bills}, to ship {shipping}")


def main() -> int:
    """Show what is committed together, and what a failure leaves of it."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", metavar="DEVICE")
    parser.add_argument("database", metavar="DATABASE")
    given = parser.parse_args()
    engine = sa.create_engine(f"sqlite:///{given.database}")
    try:
        Base.metadata.create_all(engine)
        with engine.begin() as connection:
            qmadmin.create_decision_table(connection)
        with qmadmin.create_device(given.device, 2000) as device:
            lay_out(device)
            try:
                with device.open_space(SPACE) as space, orm.Session(engine) as session:
                    # What an earlier run has left in doubt, where there is one: with this device there is none.
                    with engine.connect() as connection:
                        qmadmin.recover(connection)
                    show(Office(session, space))
            finally:
                device.destroy_space(SPACE, force=True)
    finally:
        engine.dispose()
    return 0


def show(office: Office) -> None:
    """Go through it."""
    office.place(1, 100)
    office.tell("an order was placed")
    try:
        office.bill(power_fails=True)
    except KeyboardInterrupt:
        office.tell("its bill was cut short")
    office.bill()
    office.tell("it was billed")
    office.place(1, 999)
    try:
        office.bill()
    except exc.IntegrityError:
        office.tell("the same order was refused")


def lay_out(device: qmadmin.Device) -> None:
    """Make the queue space and its queues."""
    device.create_space(
        qmadmin.SpaceDefinition(
            name=SPACE,
            ipc_key=40000,
            pages=500,
            queues=3,
            transactions=5,
            processes=5,
            messages=100,
            error_queue=ERRORS,
        )
    )
    with device.open_space(SPACE) as space:
        for name in (ORDERS, SHIPPING, ERRORS):
            space.create_queue(qmadmin.QueueDefinition(name=name, retries=3))


if __name__ == "__main__":
    sys.exit(main())
