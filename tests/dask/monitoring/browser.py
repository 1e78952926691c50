"""A headless browser that a test steers: open a page, read what it shows, take a picture.

It speaks the DevTools protocol over a websocket; there is no driver to install.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tornado.httpclient import AsyncHTTPClient
from tornado.websocket import WebSocketClientConnection, websocket_connect

__all__ = ["CHROMIUM", "Tab", "tab"]

CHROMIUM = shutil.which("chromium")

#: Text of a page, that of shadow roots included, in which bokeh draws.
_TEXT = """
(() => {
  const texts = [];
  const walk = (node) => {
    if (node.nodeType === Node.TEXT_NODE) { texts.push(node.textContent); return; }
    if (node.shadowRoot) { walk(node.shadowRoot); }
    if (["SCRIPT", "STYLE"].includes(node.nodeName)) { return; }
    for (const child of node.childNodes) { walk(child); }
  };
  walk(document.body);
  return texts.map((text) => text.trim()).filter((text) => text).join("\\n");
})()
"""

#: How many elements of one kind there are, in shadow roots too.
_COUNT = """
((wanted) => {
  let found = 0;
  const walk = (node) => {
    if (node.nodeName === wanted) { found += 1; }
    if (node.shadowRoot) { walk(node.shadowRoot); }
    for (const child of node.childNodes) { walk(child); }
  };
  walk(document.body);
  return found;
})(%s)
"""


class Tab:
    """One page of the browser."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self._connection = connection
        self._sent = 0

    async def call(self, method: str, **parameters: Any) -> Any:
        """Return the result of one command."""
        self._sent += 1
        said = {"id": self._sent, "method": method, "params": parameters}
        await self._connection.write_message(json.dumps(said))
        while True:
            answer = json.loads(await asyncio.wait_for(self._connection.read_message(), 60))
            if answer.get("id") == self._sent:
                assert "error" not in answer, answer
                return answer["result"]

    async def value(self, expression: str) -> Any:
        """Return what a JavaScript expression is."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return result["result"].get("value")

    async def text(self) -> str:
        """Return the text that the page shows."""
        return str(await self.value(_TEXT))

    async def count(self, name: str) -> int:
        """Return how many elements of the name there are."""
        return int(await self.value(_COUNT % json.dumps(name.upper())))

    async def shows(self, *texts: str) -> str:
        """Return the text of the page once it has all of *texts*."""
        for _ in range(600):
            found = await self.text()
            if all(text in found for text in texts):
                return found
            await asyncio.sleep(0.1)
        raise AssertionError(f"the page shows no {texts}:\n{found}")

    async def picture(self, path: Path) -> None:
        """Write what the page looks like as a PNG."""
        result = await self.call("Page.captureScreenshot")
        path.write_bytes(base64.b64decode(result["data"]))


@contextlib.asynccontextmanager
async def tab(address: str, folder: Path) -> AsyncIterator[Tab]:
    """Open *address* in a browser whose profile is in *folder*."""
    assert CHROMIUM is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1100"]
    options += [f"--user-data-dir={folder}", "--remote-debugging-port=0"]
    browser = subprocess.Popen(
        [CHROMIUM, *options, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        port = folder / "DevToolsActivePort"
        for _ in range(600):
            if port.exists() and "\n" in port.read_text():
                break
            await asyncio.sleep(0.1)
        host = f"127.0.0.1:{port.read_text().splitlines()[0]}"
        listed = json.loads((await AsyncHTTPClient().fetch(f"http://{host}/json/list")).body)
        [page] = [each for each in listed if each["type"] == "page"]
        connection = await websocket_connect(page["webSocketDebuggerUrl"], max_message_size=1 << 26)
        try:
            yield Tab(connection)
        finally:
            connection.close()
    finally:
        browser.terminate()
        browser.wait(timeout=30)
