"""The command line: `scripts/bench [options]` for SQLite, `scripts/bench postgres [options]` for PostgreSQL."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the benchmark that the first argument names."""
    if sys.argv[1:2] == ["postgres"]:
        from benchmarks import postgres

        sys.exit(postgres.main(sys.argv[2:]))
    from benchmarks import sqlite

    sqlite.main()


if __name__ == "__main__":
    main()
