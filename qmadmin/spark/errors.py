"""What Spark says of a job that failed, in one sentence."""

from __future__ import annotations

from qmadmin.spark.java_faults import reason_of
from qmcore.errors import SystemFailureError


def explained(error: Exception) -> SystemFailureError:
    """Return the diagnostic for a job that Spark gave up."""
    lines = [line.strip() for line in str(error).splitlines()]
    reason = next((line for line in reversed(lines) if "Error: " in line or "Exception: " in line), lines[0])
    # What went wrong at last, without the tries before it and without the names of classes that stand before it.
    reason = reason.rpartition("most recent failure: ")[2].removeprefix(": ").removeprefix("Caused by: ")
    return SystemFailureError(
        f"Spark gave up the job: {reason_of(reason)}",
        hint="What was done stays done; the same command goes on where it was.",
    )
