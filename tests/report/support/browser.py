"""A headless Chromium, spoken to by its DevTools protocol over a pair of pipes: no port, no driver.

Messages are JSON objects that end with a zero byte; the browser reads them from descriptor 3 and
answers on descriptor 4 (--remote-debugging-pipe).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.patience import HANG_SECONDS

# What one read takes from the pipe at most.
READ_BYTES = 1 << 20

Json = dict[str, Any]


class BrowserError(Exception):
    """The browser ended, did not answer, or refused what it was asked."""


@dataclass
class Page:
    """One tab, with all that it logged: messages of the console, exceptions, requests."""

    browser: Browser
    session: str
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    loaded: bool = False

    def call(self, method: str, **parameters: Any) -> Json:
        """One command of the protocol to this tab."""
        return self.browser.call(method, parameters, self.session)

    def open(self, file: Path) -> None:
        """Loads a file and waits until it has loaded."""
        self.loaded = False
        self.call("Page.navigate", url=file.absolute().as_uri())
        self.browser.wait(lambda: self.loaded, "the page to load")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited if it is a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(_exception(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def texts(self, selector: str) -> list[str]:
        """The text of every element that the selector finds."""
        found = json.dumps(selector)
        texts: list[str] = self.evaluate(
            f"[...document.querySelectorAll({found})].map((each) => each.textContent)"
        )
        return texts

    def size(self, width: int, height: int) -> None:
        """The size of the window in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def media(self, *, scheme: str = "light", kind: str = "screen") -> None:
        """What the page is told about colours (light, dark) and the medium (screen, print)."""
        self.call(
            "Emulation.setEmulatedMedia",
            media=kind,
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A mouse event (mouseMoved, mousePressed, mouseReleased, mouseWheel) in the window."""
        self._to_front()
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, key: str, text: str = "") -> None:
        """A key pressed and let go."""
        self._to_front()
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def _to_front(self) -> None:
        """A tab behind another would leave an input without an answer."""
        self.call("Page.bringToFront")

    def screenshot(self, file: Path, *, whole: bool = False) -> Path:
        """A picture of the window, or of the whole page."""
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(picture["data"]))
        return file

    def pdf(self) -> bytes:
        """The page as it would be printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])


def _exception(details: Json) -> str:
    thrown = details.get("exception") or {}
    return str(thrown.get("description") or thrown.get("value") or details.get("text"))


class Browser:
    """One browser process with a profile of its own; close() it."""

    def __init__(self, profile: Path) -> None:
        program = shutil.which("chromium")
        if program is None:
            raise BrowserError("there is no chromium: scripts/setup installs it")
        self.pages: dict[str, Page] = {}
        self.answers: dict[int, Json] = {}
        self.rest = b""
        self.last = 0
        to_browser, self.commands = os.pipe()
        self.events, from_browser = os.pipe()
        command = [
            program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--mute-audio",
            f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        self.log = (profile.parent / f"{profile.name}.log").open("wb")
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", *command],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            pass_fds=(to_browser, from_browser),
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)

    def close(self) -> None:
        """Ends the browser with all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.commands)
        os.close(self.events)
        self.log.close()

    def page(self) -> Page:
        """A new tab that records what goes wrong in it."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, attached["sessionId"])
        self.pages[page.session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        return page

    def call(self, method: str, parameters: Json, session: str | None = None) -> Json:
        """Sends one command and waits for its answer."""
        self.last += 1
        number = self.last
        message: Json = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.commands, data) :]
        self.wait(lambda: number in self.answers, method)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        result: Json = answer["result"]
        return result

    def wait(self, done: Any, what: str) -> None:
        """Takes messages until `done()` holds."""
        end = time.monotonic() + HANG_SECONDS
        while not done():
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.events], [], [], left)[0]:
                raise BrowserError(f"waited {HANG_SECONDS:.0f} s for {what}")
            data = os.read(self.events, READ_BYTES)
            if not data:
                raise BrowserError(f"the browser ended while it was asked for {what}")
            *messages, self.rest = (self.rest + data).split(b"\0")
            for message in messages:
                self._take(json.loads(message))

    def _take(self, message: Json) -> None:
        if "id" in message:
            self.answers[message["id"]] = message
            return
        page = self.pages.get(message.get("sessionId", ""))
        if page is None:
            return
        parameters: Json = message["params"]
        match message["method"]:
            case "Page.loadEventFired":
                page.loaded = True
            case "Runtime.exceptionThrown":
                page.console.append(_exception(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                words = [str(each.get("value")) for each in parameters["args"]]
                page.console.append(f"{parameters['type']}: {' '.join(words)}")
            case "Log.entryAdded":
                entry = parameters["entry"]
                page.console.append(f"{entry['level']}: {entry['text']}")
            case "Network.requestWillBeSent":
                page.requests.append(parameters["request"]["url"])
