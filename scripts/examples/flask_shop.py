"""Flask and SQLAlchemy: an order and the message about it commit together; a worker ships what was ordered.

    flask --app flask_shop run      (or: gunicorn --preload --workers 4 flask_shop:web)
    qmadmin run flask_shop:queues
    curl --json '{"what": "a chair"}' localhost:5000/orders

The queues are in the database of the shop, shop.db or what SHOP_DATABASE says.
"""

from __future__ import annotations

import os
from typing import Any

from flask import Flask, request
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import qmadmin

DATABASE = os.environ.get("SHOP_DATABASE", "shop.db")

engine = create_engine(f"sqlite:///{DATABASE}")
queues = qmadmin.App(DATABASE, space="SHOP", create=True)
web = Flask(__name__)


class Base(DeclarativeBase):
    """The tables of the shop."""


class Order(Base):
    """What somebody has ordered, and whether it was shipped."""

    __tablename__ = "shop_order"
    number: Mapped[int] = mapped_column(primary_key=True)
    what: Mapped[str]
    shipped: Mapped[bool] = mapped_column(default=False)


@queues.handler("orders")
def ship(order: dict[str, int]) -> None:
    """Ship an order. It may be called again for the same one, to which that makes no difference."""
    with Session(engine) as session, session.begin():
        found = session.get_one(Order, order["number"])
        if found.what == "a vase":
            raise qmadmin.Failure("no vases in stock", permanent=True)
        found.shipped = True


@web.post("/orders")
def place() -> tuple[dict[str, Any], int]:
    """Place an order: both are there after the commit, or neither is."""
    with Session(engine) as session, session.begin():
        order = Order(what=request.get_json()["what"])
        session.add(order)
        session.flush()
        ship.enqueue({"number": order.number}, connection=session)
        return {"number": order.number}, 201


@web.get("/orders/<int:number>")
def show(number: int) -> dict[str, Any]:
    """Show an order."""
    with Session(engine) as session:
        order = session.get_one(Order, number)
        return {"number": order.number, "what": order.what, "shipped": order.shipped}


@web.before_request
def open_queues() -> None:
    """Open the queue space in this process: in a file, that is done before a transaction on the file begins."""
    _ = queues.space


Base.metadata.create_all(engine)
# Of SQLite no connection may go on in a process that a server forks (gunicorn --preload).
engine.dispose()
