"""`manage.py qmadmin_run`: a worker for the handlers of a project of Django, on both kinds of database."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fix_applications import connected, database_of_django
from tests.fix_process import eventually
from tests.fix_store import SOURCES, device_path

SETTINGS = """
DATABASES = {{"default": {database}}}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
INSTALLED_APPS = ["qmadmin.django", "shop"]
QMADMIN = {{"SPACE": "SHOP", "QUEUES": ["orders", "bills"]}}
SECRET_KEY = "not for production"
USE_TZ = True
"""

MANAGE = """
import os
import sys

from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
execute_from_command_line(sys.argv)
"""

MODELS = """
from django.db import connection, models, transaction


class Order(models.Model):
    what = models.TextField()
    state = models.TextField()


def place(what, fails=False):
    from shop.handlers import ship

    with transaction.atomic():
        order = Order.objects.create(what=what, state="placed")
        ship.enqueue({"order": order.pk}, connection=connection)
        if fails:
            raise LookupError(what)
"""

HANDLERS = """
from qmadmin.django import handler
from shop.models import Order


@handler("orders", workers=2)
def ship(order: dict[str, int]) -> None:
    Order.objects.filter(pk=order["order"]).update(state="shipped")
    bill.enqueue(order)
    print("shipped", order["order"], flush=True)


@handler("bills")
async def bill(order: dict[str, int]) -> None:
    await Order.objects.filter(pk=order["order"]).aupdate(state="billed")
"""


class Project:
    """A project of Django in a directory, with one application, `shop`."""

    def __init__(self, place: Path, database: dict[str, Any]) -> None:
        self.place = place
        (place / "shop").mkdir(parents=True)
        self.write("settings", SETTINGS.format(database=database))
        self.write("manage", MANAGE)
        self.write("shop/__init__", "")
        self.write("shop/models", MODELS)
        self.write("shop/handlers", HANDLERS)
        self.managed("migrate", "--run-syncdb", "-v0")

    def write(self, module: str, text: str) -> None:
        (self.place / f"{module}.py").write_text(text)

    def command(self, *arguments: str) -> dict[str, Any]:
        return {
            "args": [sys.executable, "-W", "error", "manage.py", *arguments],
            "cwd": self.place,
            "env": os.environ | {"PYTHONPATH": SOURCES},
            "text": True,
        }

    def ran(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            **self.command(*arguments), capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=120
        )

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start a process that ends with the block, at the latest."""
        with subprocess.Popen(
            **self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        ) as it:
            try:
                yield it
            except BaseException:
                it.kill()
                print(it.communicate()[1])
                raise

    def managed(self, *arguments: str) -> str:
        done = self.ran(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def shell(self, program: str) -> str:
        return self.managed("shell", "-v0", "-c", program)

    def states(self) -> str:
        return self.shell("from shop.models import Order; print(*(each.state for each in Order.objects.all()))")


@pytest.fixture(params=["file", "postgres"])
def project(request: pytest.FixtureRequest, tmp_path: Path, memory_dir: Path) -> Iterator[Project]:
    place = device_path(request.param, request, tmp_path)
    database = database_of(place)
    if "://" not in place:
        yield Project(tmp_path / "project", database)
        return
    name = f"shop_{database['NAME']}"
    with contextlib.closing(connected(place)) as connection:
        connection.autocommit = True
        connection.execute(f"CREATE DATABASE {name}")
        yield Project(tmp_path / "project", database | {"NAME": name})
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def file_project(tmp_path: Path, memory_dir: Path) -> Project:
    return Project(tmp_path / "project", database_of(str(tmp_path / "db.sqlite3")))


@pytest.fixture(scope="module")
def kept_project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One of several tests: what their commands are told is wrong before they do anything."""
    place = tmp_path_factory.mktemp("kept")
    return Project(place / "project", database_of(str(place / "db.sqlite3")))


@pytest.fixture
def read_project(kept_project: Project) -> Iterator[Project]:
    """A project whose modules a test may write, and whose queues and tables are only read."""
    modules = {name: (kept_project.place / f"{name}.py").read_text() for name in ("settings", "shop/handlers")}
    yield kept_project
    for name, text in modules.items():
        kept_project.write(name, text)


def database_of(place: str) -> dict[str, Any]:
    found = database_of_django(place)
    return found if "://" in place else found | {"OPTIONS": {"transaction_mode": "IMMEDIATE"}}


def test_an_order_is_shipped_by_a_worker_that_sigterm_ends(project: Project) -> None:
    with project.started("qmadmin_run") as worker:
        project.shell("from shop.models import place; place('chair')")
        assert worker.stdout is not None
        assert worker.stdout.readline() == "shipped 1\n"
        eventually(lambda: project.states() == "billed")
        worker.send_signal(signal.SIGTERM)
        told = worker.communicate(timeout=60)[1]
    assert worker.returncode == 0
    assert "settings calls the handlers of 'orders', 'bills'" in told
    assert "Traceback" not in told


def test_a_view_whose_transaction_fails_has_sent_nothing(file_project: Project) -> None:
    file_project.shell("""
from shop.models import place
place('chair')
try:
    place('vase', fails=True)
except LookupError:
    pass
""")
    assert file_project.managed("qmadmin_run", "--until-empty") == "shipped 1"
    assert file_project.states() == "billed"


@pytest.mark.parametrize("project", ["postgres"], indirect=True)
def test_a_call_that_leaves_a_connection_broken_takes_no_other_one_with_it(project: Project) -> None:
    project.write(
        "shop/handlers",
        """
from django.db import connection

from qmadmin.django import handler
from shop.models import Order


@handler("orders", retries=3, retry_delay=0)
def ship(order: dict[str, int]) -> None:
    Order.objects.filter(pk=order["order"]).update(state="shipped")
    # The server has ended it; Django has not noticed, and notes it with the next error.
    if order["order"] == 1:
        connection.connection.close()
        Order.objects.count()


@handler("bills")
async def bill(order: dict[str, int]) -> None:
    pass
""",
    )
    project.write(
        "settings", (project.place / "settings.py").read_text() + 'DATABASES["default"]["CONN_MAX_AGE"] = None'
    )
    project.shell("from shop.models import place; place('chair'); place('table')")
    done = project.ran("qmadmin_run", "-e")
    assert done.returncode == 0, done.stderr
    assert project.states() == "shipped shipped"


def test_connections_are_looked_at_before_and_after_each_call_in_its_thread(file_project: Project) -> None:
    file_project.write(
        "shop/handlers",
        """
import threading

from asgiref.sync import sync_to_async
from django.db import connection

from qmadmin.django import handler
from shop.models import Order


def tell(*what):
    print(*what, connection.connection is None, flush=True)


@handler("orders")
def ship(order: dict[str, int]) -> None:
    tell("before")
    Order.objects.count()
    tell("after")


@handler("bills")
async def bill(order: dict[str, int]) -> None:
    await sync_to_async(tell)("before")
    await Order.objects.acount()
    await sync_to_async(tell)("after")
""",
    )
    file_project.shell("from shop.handlers import *; [each.enqueue({}) for each in (ship, ship)]")
    # CONN_MAX_AGE is 0, so that each call begins without a connection, and its own is closed behind it.
    assert file_project.managed("qmadmin_run", "-e").splitlines() == ["before True", "after False"] * 2
    file_project.shell("from shop.handlers import *; [each.enqueue({}) for each in (bill, bill)]")
    assert file_project.managed("qmadmin_run", "-e").splitlines() == ["before True", "after False"] * 2


def test_tests_of_a_project_run_its_handlers_where_they_want(file_project: Project) -> None:
    file_project.write(
        "settings",
        (file_project.place / "settings.py").read_text() + 'DATABASES["default"]["TEST"] = {"NAME": "test.sqlite3"}',
    )
    file_project.write(
        "shop/tests",
        """
from django.test import TransactionTestCase, override_settings

from qmadmin.django import app, close, space
from shop.models import Order, place


class Shop(TransactionTestCase):
    def test_an_order_is_billed(self):
        place("chair")
        app().run(until_empty=True)
        assert Order.objects.get().state == "billed"
        assert space().usage("bills").messages == 0

    def test_the_setting_of_the_test_holds(self):
        assert app().device_path == "test.sqlite3"
        with override_settings(QMADMIN={"SPACE": "SHOP", "DEVICE": "../db.sqlite3"}):
            assert space().usage("bills").messages == 0
            assert app().device_path == "../db.sqlite3"
        close()
""",
    )
    done = file_project.ran("test", "--noinput", "shop")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("handlers", "sentence"),
    [
        (
            "import nothing_of_this_name",
            "module 'shop.handlers' cannot be imported: ModuleNotFoundError: No module named",
        ),
        ("1 / 0", "module 'shop.handlers' cannot be imported: ZeroDivisionError: division by zero"),
        ("", "no application in INSTALLED_APPS declares a handler"),
        (HANDLERS.replace('"orders"', '"other"', 1), "there is no queue 'other' in queue space 'SHOP'"),
        (HANDLERS.replace("bills", "orders"), "queue 'orders' has the handler ship already"),
        (HANDLERS.replace("workers=2", "worker=2"), "has no option 'worker'"),
    ],
)
def test_what_keeps_it_from_running_is_said_in_a_sentence(read_project: Project, handlers: str, sentence: str) -> None:
    read_project.write("shop/handlers", handlers)
    done = read_project.ran("qmadmin_run")
    assert done.returncode == 2
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    assert sentence in said


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ('QMADMIN["SPACE"] = "OTHER"', "there is no queue space 'OTHER' on the device"),
        ("QMADMIN = None", "the setting QMADMIN must be a dict"),
        ('QMADMIN["DEVICE"] = "nowhere"', "there is no device"),
        ('INSTALLED_APPS.remove("qmadmin.django")', "Unknown command: 'qmadmin_run'"),
    ],
)
def test_a_wrong_setting_is_said_in_a_sentence(read_project: Project, setting: str, sentence: str) -> None:
    read_project.write("settings", (read_project.place / "settings.py").read_text() + setting)
    done = read_project.ran("qmadmin_run")
    assert done.returncode in (1, 2)
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_options_are_those_of_qmadmin_run_and_of_manage(read_project: Project) -> None:
    assert read_project.managed("qmadmin_run", "--settings=settings", "-e", "-w", "1", "--pythonpath", ".") == ""
    for asked in (("qmadmin_run", "--help"), ("help", "qmadmin_run")):
        shown = read_project.managed(*asked)
        assert "--until-empty" in shown
        assert "manage.py qmadmin_run [OPTIONS]" in shown
    done = read_project.ran("qmadmin_run", "--slowly")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "Usage: manage.py qmadmin_run [OPTIONS]")


def test_a_program_is_told_what_to_call_in_place_of_the_command(read_project: Project) -> None:
    told = read_project.shell("""
from django.core.management import CommandError, call_command
try:
    call_command("qmadmin_run")
except CommandError as error:
    print(error)
""")
    assert told.endswith("in Python call qmadmin.django.app().run()")


def test_rows_of_a_handler_that_joins_are_committed_with_its_message(project: Project) -> None:
    project.write(
        "shop/handlers",
        """
from django.db import connection, transaction

from qmadmin.django import app, handler
from shop.models import Order


@handler("orders", retries=1, retry_delay=0, workers=2)
def ship(order: dict[str, int]) -> None:
    app().join(connection)
    bill.enqueue(order)
    with transaction.atomic():
        its = Order.objects.get(pk=order["order"])
        its.state = "shipped"
        its.save()
    Order.objects.create(what=its.what, state="copied")
    if its.what == "vase":
        raise LookupError(its.what)


@handler("bills")
def bill(order: dict[str, int]) -> None:
    print("billed", order["order"])
""",
    )
    project.shell("from shop.models import place; place('chair'); place('vase'); place('table')")
    done = project.ran("qmadmin_run", "-e")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["billed 1", "billed 3"]
    assert sorted(project.states().split()) == ["copied", "copied", "placed", "shipped", "shipped"]
