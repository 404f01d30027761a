# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium, driven by its DevTools protocol over two pipes: opens a page at a width and in a colour scheme,
presses keys, takes pictures. Used by tests of pages (report_test.py). `find()` returns None without Chromium."""
import base64
import json
import os
import select
import shlex
import shutil
import subprocess
import tempfile
import time

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
    "--remote-debugging-pipe", "--no-first-run"]
KEYS = {
    "Tab": 9, "Enter": 13, "Escape": 27, "Space": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
TEXTS = {"Enter": "\r", "Space": " "}  # what a key types


def find():
    return next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
                None)


class Chromium:
    """`with Chromium() as browser:` one page, which open() fills."""

    def __init__(self, seconds=60):
        self.seconds, self.number, self.rest, self.events = seconds, 0, b"", []
        self.home = tempfile.TemporaryDirectory(
            ignore_cleanup_errors=True)  # child processes end shortly after the killed one
        read, self.write_end = os.pipe()  # Chromium reads descriptor 3 and writes descriptor 4
        self.read_end, write = os.pipe()
        command = shlex.join([find(), *FLAGS, f"--user-data-dir={self.home.name}", "about:blank"])
        self.process = subprocess.Popen(["bash", "-c", f"exec {command} 3<&{read} 4>&{write}"], pass_fds=(read, write),
                                        stderr=subprocess.DEVNULL)
        os.close(read)
        os.close(write)
        page = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime"):
            self.ask(f"{domain}.enable")

    session = None

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.process.kill()
        self.process.wait()
        os.close(self.read_end)
        os.close(self.write_end)
        self.home.cleanup()

    def message(self, end):
        while b"\0" not in self.rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.read_end], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            part = os.read(self.read_end, 1 << 20)
            if not part:
                raise RuntimeError("Chromium has ended")
            self.rest += part
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def ask(self, method, **parameters):
        self.number += 1
        said = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            said["sessionId"] = self.session
        os.write(self.write_end, json.dumps(said).encode() + b"\0")
        end = time.monotonic() + self.seconds
        while (answer := self.message(end)).get("id") != self.number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def wait_for(self, event):
        end = time.monotonic() + self.seconds
        while not any(one.get("method") == event for one in self.events):
            self.events.append(self.message(end))

    def open(self, page, width, height=900, scheme="light", media="screen"):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width
                 < 600)
        self.ask("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme",
                                                                       "value": scheme}])
        self.events.clear()
        self.ask("Page.navigate", url=f"file://{page}")
        self.wait_for("Page.loadEventFired")

    def value(self, expression):
        """Returns the value of a JavaScript expression, as JSON."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']['exception'].get('description')}")
        return found["result"].get("value")

    def press(self, *keys):
        for key in keys:
            given = {"key": " " if key == "Space" else key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
            text = {"text": TEXTS[key]} if key in TEXTS else {}
            self.ask("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **given, **text)
            self.ask("Input.dispatchKeyEvent", type="keyUp", **given)

    def write(self, text):
        self.ask("Input.insertText", text=text)

    def picture(self, scale=1.0):
        """PNG of the whole page."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": scale}
        return base64.b64decode(
            self.ask("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"])

    def printed(self):
        """PDF."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])
