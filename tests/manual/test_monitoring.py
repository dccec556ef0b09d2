"""The alert rules and the dashboard in scripts/monitoring: they ask for metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from qmadmin.monitoring import consumer_metrics
from qmadmin.monitoring.metrics import FAMILIES

MONITORING = Path(__file__).parents[2] / "scripts" / "monitoring"
ALERTS, DASHBOARD = MONITORING / "alerts.yml", MONITORING / "dashboard.json"

DECLARED = {
    family.shown + suffix
    for family in (
        *FAMILIES,
        *consumer_metrics.all_families(consumer_metrics.FORWARDER),
        *consumer_metrics.all_families(consumer_metrics.CONSUMER),
    )
    for suffix in (("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",))
}


def asked() -> dict[str, list[str]]:
    """Return the expressions of each file."""
    board = json.loads(DASHBOARD.read_text())
    return {
        ALERTS.name: re.findall(r"^ +expr: (.+)$", ALERTS.read_text(), re.MULTILINE),
        DASHBOARD.name: [
            *(target["expr"] for panel in board["panels"] for target in panel["targets"]),
            *(each["query"]["query"] for each in board["templating"]["list"] if each["type"] == "query"),
        ],
    }


@pytest.mark.parametrize("file", [ALERTS.name, DASHBOARD.name])
def test_each_metric_that_is_asked_for_is_declared(file: str) -> None:
    for expression in asked()[file]:
        named = set(re.findall(r"\b(?:qmadmin|tmqforward)_\w+", expression))
        assert named, expression
        assert sorted(named - DECLARED) == [], expression


def test_each_alert_has_an_expression_and_a_summary() -> None:
    text = ALERTS.read_text()
    alerts = re.findall(r"^ +- alert: (\w+)$", text, re.MULTILINE)
    assert len(set(alerts)) == len(alerts) == len(asked()[ALERTS.name]) == text.count("summary: ")


def test_panels_of_the_dashboard_are_told_apart() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    for key in ("id", "title"):
        assert len({panel[key] for panel in panels}) == len(panels)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool, which comes with Prometheus, is not installed")
def test_prometheus_takes_the_alert_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
