"""A real Chromium without a window, driven over its DevTools protocol: as much of it as tests of pages need."""

from __future__ import annotations

import base64
import itertools
import json
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
START_SECONDS, ANSWER_SECONDS = 60.0, 60.0
KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Tab": 9, "Enter": 13, "Home": 36, "End": 35}


def chromium() -> str | None:
    """Where it is, if it is there."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of it. `errors` holds what its console called an error and what was thrown."""

    def __init__(self, width: int = 1100, height: int = 900) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._folder = tempfile.TemporaryDirectory(prefix="chromium")
        self._numbers, self._events = itertools.count(1), list[dict[str, Any]]()
        self._stack = ExitStack()
        path = chromium()
        assert path is not None
        arguments = ["--headless=new", "--no-sandbox", "--remote-debugging-port=0", "--disable-gpu", "--hide-scrollbars"]
        arguments += ["--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-extensions"]
        self._log = (Path(self._folder.name) / "log").open("w+")
        self._process = subprocess.Popen(
            [path, *arguments, f"--user-data-dir={self._folder.name}/profile", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=self._log,
        )
        try:
            address = self._address()
            connection = connect(address, max_size=None, open_timeout=START_SECONDS, proxy=None)
            self._socket: ClientConnection = self._stack.enter_context(connection)
            target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
            self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
            self.resize(width, height)
        except BaseException:
            self.close()
            raise

    _session: str | None = None

    def _address(self) -> str:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            found = re.search(r"ws://\S+", (Path(self._folder.name) / "log").read_text(errors="replace"))
            if found:
                return found[0]
            time.sleep(0.05)
        raise RuntimeError(f"Chromium did not start: {(Path(self._folder.name) / 'log').read_text(errors='replace')[-2000:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        for _ in range(20):  # its helpers may still be writing
            try:
                self._folder.cleanup()
                break
            except OSError:
                time.sleep(0.1)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol, and its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        end = time.monotonic() + ANSWER_SECONDS
        while True:
            answer = json.loads(self._socket.recv(timeout=max(end - time.monotonic(), 0.01)))
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._heard(answer)

    def _heard(self, event: dict[str, Any]) -> None:
        name, facts = event.get("method"), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            details = facts["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif name == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(one.get("value", one.get("description"))) for one in facts["args"]))
        elif name == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
            self.errors.append(facts["entry"]["text"])
        elif name == "Network.requestWillBeSent":
            self.requests.append(facts["request"]["url"])
        elif name == "Page.loadEventFired":
            self._events.append(facts)

    def open(self, address: str) -> None:
        """Goes to an address, and waits until it has loaded."""
        self._events.clear()
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{script}: {found['exceptionDetails'].get('exception', {}).get('description')}")
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = 20.0) -> Any:
        """Waits until an expression is true."""
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            if time.monotonic() > end:
                raise TimeoutError(f"{script} did not become true in {seconds:.0f} s")
            time.sleep(0.05)
        return value

    def resize(self, width: int, height: int, phone: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def prefer(self, scheme: str) -> None:
        """What the system says that its user prefers: "light" or "dark"."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def key(self, name: str) -> None:
        code = KEYS[name]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def picture(self, whole: bool = False) -> bytes:
        """A PNG of what is seen, or of the whole page."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(taken["data"])

    def printed(self) -> bytes:
        """The page as PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])
