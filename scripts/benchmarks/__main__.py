"""The command line: `scripts/bench [options]` for SQLite; `postgres`, `archives`, `consumers`, `millions` go first."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the benchmark that the first argument names."""
    if sys.argv[1:2] == ["postgres"]:
        from benchmarks import postgres

        sys.exit(postgres.main(sys.argv[2:]))
    if sys.argv[1:2] == ["archives"]:
        from benchmarks import archives

        sys.exit(archives.main(sys.argv[2:]))
    if sys.argv[1:2] == ["consumers"]:
        from benchmarks import consumers

        sys.exit(consumers.main(sys.argv[2:]))
    if sys.argv[1:2] == ["millions"]:
        from benchmarks import millions

        sys.exit(millions.main(sys.argv[2:]))
    from benchmarks.sqlite import program

    sys.exit(program.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
