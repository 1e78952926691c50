"""The site: what ``make docs`` checks of it, and the parts of pages that are made from the code."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

import pytest

import safeser

PROJECT = Path(__file__).parents[2]


@cache
def load(name):
    path = PROJECT / "docs" / "theme" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"site_{name}", path)
    found = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses ask for it
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://example.org/a.js"></script>',
        '<script src="//example.org/a.js"></script>',
        '<link rel="stylesheet" href="http://example.org/a.css">',
        '<link rel="preconnect" href="https://fonts.example.org">',
        '<img alt="" src="https://example.org/a.png">',
        '<img alt="" src="a.png" srcset="https://example.org/a.png 2x">',
        '<style>@font-face { src: url("https://example.org/a.woff2") }</style>',
        '<p style="background: url(//example.org/a.png)">',
        '<pre class="mermaid">graph LR</pre>',
    ],
)
def test_a_page_that_loads_from_another_host_is_found(tmp_path, capsys, page):
    (tmp_path / "index.html").write_text(f"<html><body>{page}</body></html>")
    assert load("check").main(tmp_path) == 1
    assert "index.html" in capsys.readouterr().err


def test_links_to_follow_and_own_files_are_fine(tmp_path):
    (tmp_path / "index.html").write_text(
        '<link rel="stylesheet" href="a.css"><script src="a.js"></script><img src="a.svg">'
        '<a href="https://example.org/">elsewhere</a>'
    )
    (tmp_path / "a.css").write_text("p { background: url(a.svg) }")
    (tmp_path / "a.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    assert load("check").main(tmp_path) == 0


def test_style_sheets_and_pictures_are_looked_at(tmp_path):
    (tmp_path / "index.html").write_text("")
    (tmp_path / "a.css").write_text('@import "https://example.org/a.css";')
    (tmp_path / "a.svg").write_text("<style>@font-face { src: url(https://x.org/f) }</style>")
    assert len(load("check").problems(tmp_path)) == 2


def test_no_pages_are_no_site(tmp_path):
    assert load("check").main(tmp_path) == 1


def test_pictures_load_nothing():
    assert load("check").problems(PROJECT / "docs" / "pictures") == []


def test_every_field_of_a_policy_is_in_the_reference():
    page = load("reference").policy_fields()
    for heading in ("## `contexts`", "## `principals.confined`", "## `limits`"):
        assert heading in page
    for field in ("submission", "max_array", "authors", "same_host", "key_conflicts"):
        assert f"| `{field}` |" in page
    assert "| `safeser` | Version of the policy language. | `1` | **required** |" in page
    assert "`update-graph`" in page  # in the list of words below its table
    assert max(map(len, page.splitlines())) < 5000


def test_every_command_is_in_the_reference():
    page = load("reference").commands()
    assert "### `safeser keys init`" in page
    assert "safeser inspect [OPTIONS] FILE..." in page
    assert "| `--principal NAME` |" in page


@functools.cache
def rules():
    """Return the page of rules, which takes seconds to make."""
    return load("reference").rules()


@pytest.mark.unmeasured
def test_rules_are_in_the_reference():
    page = rules()
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in page.splitlines() if row} <= {0, 5}
    assert re.search(r"^\| `config\.signing` \| `ConfigError` \| .+ \| .+ \|$", page, re.M)
    assert "## `envelope`" in page


#: Rules that the code puts together of two texts, or keeps in a table.
PUT_TOGETHER = {
    "config.extra",
    "config.file-folder",
    "config.file-link",
    "config.file-mode",
    "config.file-owner",
    "config.not-supported",
    "config.suite",
    "config.value",
    "families.buffers",
    "families.max-array",
    "families.max-bytes",
    "families.max-refs",
    "families.version",
    "key.retired",
    "key.verify-only",
    "lint.confinement",
    "lint.values",
    "marker.pickled",
    "nanny.confined",
    "pickle.extension",
    "pickle.frame",
    "pickle.opcodes",
    "token.nondeterministic",
}


@pytest.mark.unmeasured
def test_rules_that_tests_assert_are_in_the_reference():
    listed = set(re.findall(r"^\| `([a-z0-9.-]+)` \|", rules(), re.M))
    assert {"operation.not-granted", "author.relayed", "pickle.state", "value.sparse"} <= listed
    asserted = {
        rule
        for path in (PROJECT / "tests").rglob("test_*.py")
        for rule in re.findall(r'\brule == "([a-z]+\.[a-z0-9-]+)"', path.read_text("utf-8"))
    }
    assert asserted - listed <= PUT_TOGETHER


def test_markers_of_pages_are_known():
    made = load("reference").MADE
    pages = (PROJECT / "docs").rglob("*.md")
    named = {name for page in pages for name in re.findall("<!-- made: (.*) -->", page.read_text())}
    assert named == set(made)


def test_every_public_name_is_in_the_reference():
    pages = [(PROJECT / "docs/reference" / name).read_text() for name in ("python.md", "rules.md")]
    named = set(re.findall(r"^::: safeser\.(\w+)", "\n".join(pages), re.M))
    errors = {name for name in safeser.__all__ if name.endswith(("Error", "Denied"))}
    assert set(safeser.__all__) - errors - {"audit", "pickles"} - named == set()


def test_links_that_leave_the_pages_lead_to_pages_that_show_the_file():
    repository = load("repository")
    text = "[a](../../examples/local_cluster.py) [b](../../SECURITY.md#x) [c](policy.md) [d](#e)"
    assert repository.rewritten(text, "docs/how-to/keys.md", "how-to/keys.md") == (
        "[a](../source/examples/local_cluster.py.md) [b](../security.md#x) [c](policy.md) [d](#e)"
    )
    assert "docs/how-to/policy.md" in repository.targets("[c](policy.md)", "docs/how-to/keys.md")
    shown = repository.listing("policies")
    assert "## `default.yaml`" in shown
    assert "```python" in repository.listing("examples/local_cluster.py")
    security = repository.rewritten("[p](docs/how-to/policy.md)", "SECURITY.md", "security.md")
    assert security == "[p](how-to/policy.md)"


def test_a_picture_shows_what_the_terminal_shows_in_the_end():
    pictures = load("pictures")
    printed = (
        "\x1b[1mstart\x1b[0m\r\n\x1b[?25lwaiting ...\r\x1b[2Kwaiting on\r\n\x1b[1A\x1b[2K"
        "one\r\nsecond 1 %\rsecond 9 %\r\nlast\r\n"
    )
    lines = pictures.screen(printed)
    assert lines == ["\x1b[1mstart\x1b[0m", "one", "second 9 %", "last", ""]
    picture = pictures.Picture("some", "a command", ("true",), 40, first="^one", last="^last")
    assert pictures.cut(lines, picture) == ["one", "second 9 %"]
    with pytest.raises(SystemExit, match="no line is like"):
        pictures.cut(lines, pictures.Picture("some", "", (), first="^absent"))


def test_a_picture_is_drawn_with_fonts_of_the_reader(tmp_path):
    pictures = load("pictures")
    picture = pictures.Picture("some", "a command", ("true",), 40)
    (tmp_path / "some.svg").write_text(pictures.draw(["\x1b[31mred\x1b[0m & plain"], picture))
    assert load("check").problems(tmp_path) == []
    svg = (tmp_path / "some.svg").read_text()
    assert "monospace" in svg
    assert "@font-face" not in svg
    assert "$&#160;a&#160;command" in svg or "$ a command" in svg


def test_a_command_runs_in_a_terminal_of_the_width_that_is_asked_for(tmp_path):
    printed = load("pictures").run(("stty", "size"), 80, tmp_path)
    assert printed.split()[-1] == "80"
    with pytest.raises(SystemExit, match="ended with 2"):
        load("pictures").run(("sh", "-c", "exit 2"), 80, tmp_path)
