"""A browser that tests look at pages with: Chromium, headless, driven by its DevTools protocol through two pipes."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOUND = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

_TELEPHONE = 600
_START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
"""The pipes are where Chromium looks for them."""


class Browser:
    """A running browser with one page, as wide as asked for, light or dark."""

    def __init__(self, to: int, from_: int) -> None:
        self._to, self._from, self._number, self._left = to, from_, 0, b""
        self._session: str | None = None
        self.requested: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self._call(f"{domain}.enable")

    def show(self, url: str, *, theme: str = "light") -> None:
        """Load a page, on a wide screen, and wait until it is there."""
        self.resize(1280)
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self._call("Page.navigate", url=url)
        self.evaluate(
            "new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', done))"
        )

    def resize(self, width: int) -> None:
        """Give the screen so many pixels of CSS from left to right; a narrow one is that of a telephone."""
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < _TELEPHONE}
        self._call("Emulation.setDeviceMetricsOverride", **screen)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript in the page; of a promise, what it comes to."""
        said = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def picture(self) -> bytes:
        """Return what the page looks like, as a PNG: for whoever wants to see what a test finds fault with."""
        return base64.b64decode(self._call("Page.captureScreenshot")["data"])

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        call = {"id": self._number, "method": method, "params": params}
        if self._session:
            call["sessionId"] = self._session
        os.write(self._to, json.dumps(call).encode() + b"\0")
        while True:
            told = self._told()
            if told.get("method") == "Network.requestWillBeSent":
                self.requested.append(told["params"]["request"]["url"])
            if told.get("id") == self._number:
                assert "error" not in told, told
                return told["result"]

    def _told(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            read = os.read(self._from, 1 << 16)
            assert read, "the browser has ended"
            self._left += read
        message, _, self._left = self._left.partition(b"\0")
        return json.loads(message)


@contextlib.contextmanager
def browser(directory: Path) -> Iterator[Browser]:
    """Run a browser whose profile is in a directory."""
    assert FOUND is not None
    read_call, write_call = os.pipe()
    read_answer, write_answer = os.pipe()
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _START,
            str(read_call),
            str(write_answer),
            FOUND,
            *options,
            f"--user-data-dir={directory}",
        ],
        pass_fds=(read_call, write_answer),
        stderr=subprocess.DEVNULL,
    )
    os.close(read_call)
    os.close(write_answer)
    try:
        yield Browser(write_call, read_answer)
    finally:
        process.terminate()
        process.wait(30)
        os.close(write_call)
        os.close(read_answer)
