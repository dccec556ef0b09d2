"""What is said where the Java that Spark needs is missing, too old, or broken, and how much memory it gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qmadmin.spark.session import megabytes_for, reason_in, require_java
from qmcore.errors import OperatingSystemError


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Have a `java` in the PATH that says something of itself."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    def saying(text: str, status: int = 0) -> str:
        path = tmp_path / "java"
        path.write_text(f"#!/bin/sh\n/bin/cat >&2 <<'END'\n{text}\nEND\nexit {status}\n")
        path.chmod(0o755)
        return str(path)

    return saying


@pytest.mark.parametrize("version", ["17", "17.0.12", "21.0.4", "25"])
def test_a_java_that_is_new_enough_is_taken(java, version):
    path = java(f'openjdk version "{version}" 2024-07-16')
    assert require_java() == path


@pytest.mark.parametrize(("version", "number"), [("1.8.0_422", 8), ("11.0.24", 11), ("16.0.2", 16)])
def test_an_old_java_is_told_with_its_version_and_what_to_install(java, version, number):
    path = java(f'openjdk version "{version}" 2024-07-16')
    with pytest.raises(OperatingSystemError) as caught:
        require_java()
    assert caught.value.message == f"Spark needs Java 17 or newer, and {path} is Java {number}"
    assert "apt install openjdk-17-jre-headless" in caught.value.hint


def test_a_missing_java_is_told_with_what_to_install(java):
    with pytest.raises(OperatingSystemError, match="Spark needs Java, and there is no java in the PATH") as caught:
        require_java()
    assert "openjdk-17-jre-headless" in caught.value.hint


def test_a_java_home_without_java_is_told(java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    java('openjdk version "21"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(OperatingSystemError, match="jdk has no bin/java"):
        require_java()


def test_the_reason_for_which_spark_does_not_start_is_no_line_of_a_stack():
    said = [
        "WARNING: Using incubator modules: jdk.incubator.vector\n",
        'Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or start with local\n',
        "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)\n",
        "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)\n",
    ]
    assert reason_in(said) == "Master must either be yarn or start with local"
    assert reason_in(["no room\n", "\n"]) == "no room"
    assert reason_in([]) == ""


def test_a_java_that_does_not_run_is_told(java):
    path = java("broken", status=3)
    with pytest.raises(OperatingSystemError, match=f"Spark needs Java, and {path} does not run"):
        require_java()


@pytest.mark.parametrize(
    ("master", "megabytes"), [("local", 1024), ("local[2]", 1024), ("local[8]", 2048), ("local[6,4]", 1536)]
)
def test_each_task_on_this_machine_has_memory_for_a_part_of_an_archive(monkeypatch, master, megabytes):
    monkeypatch.setattr("qmadmin.spark.session.cores", lambda: 1)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**20}.__getitem__)
    assert megabytes_for(master) == megabytes


def test_half_of_the_memory_of_the_machine_is_left(monkeypatch):
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**20}.__getitem__)
    assert megabytes_for("local[100]") == 2048
