"""Where pyarrow is imported, so that its absence is told in one sentence."""

from __future__ import annotations

from qmcore.errors import ReleaseError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ReleaseError(
        f"archives need pyarrow, which cannot be imported: {error}",
        hint="Install it with: pip install pyarrow.",
    ) from None

__all__ = ["pa", "pq"]
