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
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tornado.httpclient import AsyncHTTPClient
from tornado.websocket import WebSocketClientConnection, websocket_connect

__all__ = ["CHROMIUM", "Shown", "Tab", "contrast", "tab"]

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


#: Each text that is drawn: the text, its colour, and the colours behind it from the page's to its
#: own element's. What an SVG says in a ``title`` is drawn by the browser itself.
_DRAWN = """
(() => {
  const numbers = (colour) => {
    const found = colour.match(/[0-9.]+/g).map(Number);
    return found.length > 3 ? found : [...found, 1];
  };
  const drawn = [];
  const walk = (element, behind) => {
    const style = getComputedStyle(element);
    const svg = element instanceof SVGElement;
    if (["STYLE", "SCRIPT", "title"].includes(element.nodeName)) { return; }
    const own = svg ? behind : [...behind, numbers(style.backgroundColor)];
    for (const node of element.childNodes) {
      if (node.nodeType === Node.ELEMENT_NODE) { walk(node, own); }
      const text = node.nodeType === Node.TEXT_NODE ? node.textContent.trim() : "";
      if (text) { drawn.push([text, numbers(svg ? style.fill : style.color), own]); }
    }
  };
  walk(document.body, [numbers(getComputedStyle(document.documentElement).backgroundColor)]);
  return drawn;
})()
"""

#: Red, green and blue from 0 to 255, and alpha from 0 to 1.
Colour = Sequence[float]


class Shown(NamedTuple):
    """One text as it is drawn.

    :param contrast: by which its colour stands out from what is behind it, as WCAG 2 counts it: 1
        is not at all, 4.5 the least for text of usual size.
    """

    text: str
    contrast: float


def _over(colour: Colour, behind: Colour) -> Colour:
    """Return what is seen of *colour* in front of an opaque one."""
    *parts, alpha = colour
    mixed = (alpha * x + (1 - alpha) * y for x, y in zip(parts, behind[:3], strict=True))
    return (*mixed, 1.0)


def _luminance(colour: Colour) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (each / 255 for each in colour[:3])
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(colour: Colour, behind: Sequence[Colour]) -> float:
    """Return the contrast of WCAG 2 of *colour* in front of the layers *behind*, the last on top.

    One of those has to be opaque: what a browser shows below is its own choice.
    """
    assert any(layer[3] == 1 for layer in behind), "a page that sets no background"
    ground: Colour = (255, 255, 255, 1)
    for layer in behind:
        ground = _over(layer, ground)
    one, other = _luminance(_over(colour, ground)), _luminance(ground)
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


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

    async def prefer(self, scheme: str) -> None:
        """Show the page as to a person who prefers the colour scheme ``light`` or ``dark``."""
        wanted = {"name": "prefers-color-scheme", "value": scheme}
        await self.call("Emulation.setEmulatedMedia", features=[wanted])

    async def drawn(self) -> list[Shown]:
        """Return each text that the page shows, those in shadow roots left out."""
        found = await self.value(_DRAWN)
        return [Shown(text, contrast(colour, behind)) for text, colour, behind in found]

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
