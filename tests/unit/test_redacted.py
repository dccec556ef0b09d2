"""What looks like a password does not come out of a text."""

import pytest

from qmcore.redacted import redacted

SECRET = "s3cr!t-Geheim"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"crdl postgresql://boss:{SECRET}@db1/work 0 10", "crdl postgresql://***@db1/work 0 10"),
        (f"postgres://boss:{SECRET}@x@db1/work", "postgres://***@db1/work"),
        (f"postgresql+psycopg://boss:a/{SECRET}?b@db1/work", "postgresql+psycopg://***@db1/work"),
        (f"'postgresql+psycopg2://boss:{SECRET}@db1/work' is", "'postgresql+psycopg2://***@db1/work' is"),
        (f"POSTGRESQL://:{SECRET}@/work", "POSTGRESQL://***@/work"),
        (f"got 'postgresql://boss:{SECRET}...", "got 'postgresql://***"),
        ("got 'postgresql://boss:12345...", "got 'postgresql://***"),
        (f"https://boss:{SECRET}@host/path", "https://***@host/path"),
        (f"of 'postgresql//boss:{SECRET}@db1/work'", "of 'postgresql//***@db1/work'"),
        (f"postgres:/boss:{SECRET}@db1/work", "postgres:/***@db1/work"),
        (f"postgresql:boss:{SECRET}@db1/work", "postgresql:***@db1/work"),
        (f"postgresql:///boss:{SECRET}@db1/work", "postgresql://***@db1/work"),
        (f"Postgresql;//boss:a/{SECRET}@db1/work", "Postgresql;//***@db1/work"),
        (f"pgsql:boss:{SECRET}@db1", "pgsql:***@db1"),
        (f"ostgresql//boss:{SECRET}@db1/work", "ostgresql//***@db1/work"),
        (f"no device '/home/me/postgresql/boss:{SECRET}@db1/work'", "no device '/home/me/postgresql/***@db1/work'"),
        (f"postgresql://db1/work?pasword={SECRET}&schema=x)", "postgresql://db1/work?pasword=***&schema=x)"),
        (f"'postgresql://db1/work?{SECRET}'", "'postgresql://db1/work?***'"),
        (f"postgresql://db1/work?password={SECRET}&schema=x", "postgresql://db1/work?password=***&schema=x"),
        (f"got 'postgresql://db1/work?sslpassword={SECRET}', no", "got 'postgresql://db1/work?sslpassword=***', no"),
        (f"host=db1 password={SECRET} dbname=x", "host=db1 password=*** dbname=x"),
        (f"host=db1 password = 'it\\'s {SECRET}' dbname=x", "host=db1 password = *** dbname=x"),
        (f'Password="{SECRET}"', "Password=***"),
        (f"!PGPASSWORD={SECRET} psql", "!PGPASSWORD=*** psql"),
        (f"x?password={SECRET}'s&schema=x", "x?password=***&schema=x"),
    ],
)
def test_a_password_is_taken_out_and_the_rest_stays(text, left):
    assert redacted(text) == left
    assert redacted(left) == left


@pytest.mark.parametrize(
    "text",
    [
        "",
        "qenq Q1 'mail to a@b.example'",
        "postgresql://db1:5432/work?schema=x",
        "'postgresql://a:1,b:2/work?schema=x', or",
        "postgresql://[::1]:5432/work?schema=x",
        "postgresql:///work?host=/run/pg&port=5433&schema=x",
        "https://host:8080/a@b",
        "https://user@host/path",
        "position: 4, mail bob@x",
        "/tmp/a:b and c@d",
        "passfile=/home/me/.pgpass",
        "the password is wrong",
        "password= ",
    ],
)
def test_what_is_no_password_stays(text):
    assert redacted(text) == text
