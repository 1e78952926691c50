"""Checks a built site: ``python docs/theme/check.py build/site``.

The one rule: a page loads nothing from another host, and the search needs no server. Links that a
reader may follow are not checked.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

#: Attributes by which a page loads something, of any element but a link to follow.
LOADING = ("src", "srcset", "data", "poster", "xlink:href")
_EXTERNAL = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:url\(|@import)\s*['\"]?\s*(?:https?:)?//[^)'\";\s]*", re.IGNORECASE)


class Loads(HTMLParser):
    """Collects what one page loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        loaded = [values[name] for name in LOADING if name in values]
        if tag in ("link", "use", "image"):
            loaded.append(values.get("href", ""))
        if "mermaid" in values.get("class", "").split():
            self.found.append("a mermaid diagram, whose script the theme fetches")
        self.found += [f"<{tag}> {each}" for each in loaded if _EXTERNAL.match(each)]
        self.found += _IN_STYLE.findall(values.get("style", ""))


def problems(site: Path) -> list[str]:
    """Return what pages and style sheets below *site* would load from other hosts."""
    found = []
    for path in sorted(site.rglob("*")):
        name = path.relative_to(site)
        if path.suffix == ".html":
            text = path.read_text("utf-8")
            page = Loads()
            page.feed(text)
            styles = re.findall(r"<style[^>]*>(.*?)</style>", text, re.DOTALL)
            found += [f"{name}: {each}" for each in page.found]
            found += [f"{name}: {each}" for style in styles for each in _IN_STYLE.findall(style)]
        elif path.suffix in (".css", ".svg"):
            found += [f"{name}: {each}" for each in _IN_STYLE.findall(path.read_text("utf-8"))]
    return found


def main(site: Path) -> int:
    """Print what is wrong with *site*, and return the exit code."""
    pages = len(list(site.rglob("*.html")))
    found = problems(site)
    if not pages:
        print(f"no pages in {site}", file=sys.stderr)
    if not (site / "search" / "search_index.js").exists():
        found.append("no index as a script, without which the search works from a server alone")
    for each in found:
        print(f"wrong: {each}", file=sys.stderr)
    print(f"{site}: {pages} pages, {len(found)} faults")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
