"""A headless browser, spoken to by the protocol of its own developer tools."""

import base64
import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
import websocket

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_browser() -> str:
    """Its path. Where there is none the test is skipped; with BROWSER_REQUIRED in the environment it fails."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if not found and os.environ.get("BROWSER_REQUIRED"):
        pytest.fail(f"no browser: none of {', '.join(NAMES)} is on the PATH")
    return found or pytest.skip(f"no browser here: none of {', '.join(NAMES)}")


class Browser:
    """One page of a browser with a profile of its own in `directory`."""

    def __init__(self, path: str, directory: Path, url: str):
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        flags += ["--hide-scrollbars"]  # in pictures
        flags += ["--remote-debugging-port=0", "--remote-allow-origins=*", "--window-size=900,800"]
        flags += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={directory}"]
        log = directory / "log"
        with log.open("w") as file:
            self.process = subprocess.Popen([path, *flags, url], stdout=file, stderr=file, start_new_session=True)
        port = _wait(lambda: re.search(r"ws://127\.0\.0\.1:(\d+)/", log.read_text())).group(1)
        self.socket = websocket.create_connection(_wait(lambda: _page_of(port)), timeout=60)
        self.number = 0
        self.faults: list[str] = []  # errors of the page since `watch`
        self.wait(f"location.href == {url!r} && document.readyState == 'complete'")

    def run(self, expression: str):
        """The value of an expression in the page; promises are waited for."""
        sent = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        result = self.call("Runtime.evaluate", sent)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression: str, seconds: float = 60) -> None:
        """Until an expression is true."""

        def is_true() -> bool:
            try:
                return self.run(f"Boolean({expression})")
            except LookupError:  # the page has just been left for another
                return False

        _wait(is_true, expression, seconds)

    def picture(self, file: Path, selector: str = "") -> None:
        """Take a picture of what is seen, or of the whole of one element."""
        asked: dict = {"format": "png"}
        if selector:
            box = f"document.querySelector({selector!r}).getBoundingClientRect()"
            left, top, width, height = self.run(
                f"(({{x, y, width, height}}) => [x + scrollX, y + scrollY, width, height])({box})"
            )
            clip = {"x": left - 3, "y": top - 3, "width": width + 6, "height": height + 6, "scale": 1}
            asked |= {"clip": clip, "captureBeyondViewport": True}
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", asked)["data"]))

    def call(self, method: str, parameters: dict) -> dict:
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while (answer := json.loads(self.socket.recv())).get("id") != self.number:
            self._note(answer)
        if "error" in answer:
            raise LookupError(answer["error"]["message"])
        return answer["result"]

    def watch(self) -> None:
        """Note errors from now on: exceptions, refused loads, what the console gets as an error."""
        for part in ("Runtime", "Log"):
            self.call(f"{part}.enable", {})
        self.run("0")  # events of before come first

    def _note(self, event: dict) -> None:
        found = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.faults.append(str(found["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded" and found["entry"]["level"] == "error":
            self.faults.append(f"{found['entry']['text']} {found['entry'].get('url', '')}")

    def show_as(self, width: int, height: int, scheme: str) -> None:
        """Give the page a size and a color scheme, as a phone or a desktop has them."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", size)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.call("Emulation.setEmulatedMedia", media)

    def close(self) -> None:
        self.call("Browser.close", {})
        self.socket.close()
        self.process.wait(timeout=30)


def _page_of(port: str) -> str | None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=10) as reply:
        pages = [page for page in json.load(reply) if page["type"] == "page"]
    return pages[0]["webSocketDebuggerUrl"] if pages else None


def _wait(happened, what: str = "the browser", seconds: float = 60):
    deadline = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)
    return found
