"""A hook of mkdocs: links from pages to files of the repository that are not in ``docs/``.

The one rule: a link that works in the repository works on the site. The project's own pages
(``SECURITY.md`` and others) become pages of the site, and each other file or folder that a page
links to becomes a page that shows its text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
#: Pages of the repository that are pages of the site.
PAGES = {
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "README.md",  # the home page stands for it
}
_LINK = re.compile(r"\]\((?P<target>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".sh": "bash", ".service": "ini"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand outside of ``docs/``, and those that show what pages link to."""
    from mkdocs.structure.files import File

    texts = {page.src_uri: page.content_string for page in files.documentation_pages()}
    for source, page in PAGES.items():
        if page not in texts:
            texts[page] = (ROOT / source).read_text("utf-8")
            content = rewritten(texts[page], source, page)
            files.append(File.generated(config, page, content=content))
    shown = set()
    for page, text in texts.items():
        shown |= {target for target in targets(text, source_of(page)) if page_of(target) is None}
    for target in sorted(shown):
        files.append(File.generated(config, f"source/{target}.md", content=listing(target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of one page."""
    here = page.file.src_uri
    if here in PAGES.values() and here != "README.md":
        return markdown  # rewritten when it was added
    return rewritten(markdown, source_of(here), here)


def source_of(page: str) -> str:
    """Return where in the repository *page* of the site stands."""
    for source, each in PAGES.items():
        if each == page and source != "README.md":
            return source
    return f"docs/{page}"


def page_of(target: str) -> str | None:
    """Return the page of the site that stands for *target*, a path in the repository."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return PAGES.get(target)


def targets(text: str, source: str) -> set[str]:
    """Return the paths in the repository to which *text* links."""
    folder = posixpath.dirname(source)
    found = {posixpath.normpath(posixpath.join(folder, m["target"])) for m in _LINK.finditer(text)}
    return {target for target in found if (ROOT / target).exists()}


def rewritten(text: str, source: str, page: str) -> str:
    """Return *text* of *source* with its links as they are on *page* of the site."""

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match["target"]))
        if not (ROOT / target).exists():
            return match[0]  # mkdocs warns of it
        goal = page_of(target) or f"source/{target}.md"
        path = posixpath.relpath(goal, posixpath.dirname(page) or ".")
        return f"]({path}{match['anchor'] or ''})"

    return _LINK.sub(link, text)


def listing(target: str) -> str:
    """Return a page that shows a file, or each file of a folder."""
    path = ROOT / target
    paths = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    paths = [each for each in paths if "__pycache__" not in each.parts]
    parts = [f"---\nsearch: {{exclude: true}}\n---\n\n# `{target}`\n"]
    for each in paths:
        if path.is_dir():
            parts.append(f"## `{each.relative_to(path)}`\n")
        language = _LANGUAGES.get(each.suffix, "text")
        parts.append(f"````{language}\n{each.read_text('utf-8').rstrip()}\n````\n")
    return "\n".join(parts)
