"""A hook of mkdocs: the parts of reference pages that are made from the code.

The one rule: what the code says is written once, in the code. A page has a comment
``<!-- made: NAME -->`` where the part NAME goes, and reads well without it.

====================  ==============================================================
``policy-fields``     the schema that ``safeser policy schema`` prints, as tables
``commands``          each command with its arguments and options
``rules``             each rule that an error names, with its message and its remedy
====================  ==============================================================
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
_MARKER = re.compile(r"^<!-- made: ([a-z-]+) -->$", re.MULTILINE)
#: What patterns of the schema stand for, by a part of each.
_PATTERNS = {
    "KiB": "text like `64MiB`",
    "(?:_[0-9]+)": "text like `100_000`",
    "[A-Za-z0-9_.@-]": "a name",
    "[a-z0-9_-]": "the name of a family of one's own",
}
#: Longer lists of words stand below the table.
_LONG = 10
_CODE = re.compile(r"<code>[^<]*</code>")
_OPTION = re.compile(r"--[a-z][a-z-]*")
#: Roles of reStructuredText, which docstrings hold, as they come out of Markdown.
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc|obj):<code>~?([^<]*)</code>")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put in what is made."""
    return _MARKER.sub(lambda match: MADE[match[1]](), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show names in docstrings as code, and keep the words of options on one line."""
    html = _ROLE.sub(r"<code>\1</code>", html)
    return _CODE.sub(
        lambda match: _OPTION.sub(r'<span class="option">\g<0></span>', match[0]), html
    )


# ----------------------------------------------------------------------------- policy


def policy_fields() -> str:
    """Return a table of fields for each part of a policy."""
    from typer.testing import CliRunner

    from safeser.cli.app import app

    root = json.loads(CliRunner().invoke(app, ["policy", "schema"]).output)
    parts = {
        _heading(name, root): part for name, part in root["$defs"].items() if "properties" in part
    }
    order = [*root["properties"]]  # each part behind the one that holds it
    names = {path: path.strip("`") for path in parts}
    paths = sorted(parts, key=lambda path: (order.index(names[path].split(".")[0]), names[path]))
    return "\n\n".join([_fields("The file", root), *(_fields(each, parts[each]) for each in paths)])


def _heading(name: str, root: dict[str, Any]) -> str:
    """Return the path of the field that the part *name* of the schema describes."""
    for owner, part in [("", root), *root["$defs"].items()]:
        for field, shape in part.get("properties", {}).items():
            if f"#/$defs/{name}" in json.dumps(shape):
                above = _heading(owner, root).strip("`") if owner else ""
                return f"`{above}.{field}`" if above else f"`{field}`"
    return f"`{name}`"


def _fields(title: str, part: dict[str, Any]) -> str:
    lines = [f"## {title}", ""]
    if "description" in part:
        lines += [part["description"], ""]
    lines += ["| field | meaning | value | default |", "| --- | --- | --- | --- |"]
    listed = []
    for field, shape in part["properties"].items():
        meaning, value = shape.get("description", ""), _shape(shape)
        default = "**required**" if field in part.get("required", ()) else ""
        if "default" in shape:
            default = f"`{json.dumps(shape['default'])}`"
        lines.append(f"| `{field}` | {meaning} | {value} | {default} |")
        listed += [(field, words) for words in _long_enumerations(shape)[:1]]
    for field, words in listed:
        lines += ["", f"Words of `{field}`: {', '.join(f'`{each}`' for each in words)}."]
    return "\n".join(lines)


def _long_enumerations(shape: Any) -> list[list[str]]:
    """Return the lists of words in *shape* that are too long for a table."""
    if isinstance(shape, list):
        return [found for each in shape for found in _long_enumerations(each)]
    if not isinstance(shape, dict):
        return []
    if len(shape.get("enum", ())) > _LONG:
        return [shape["enum"]]
    return [found for each in shape.values() for found in _long_enumerations(each)]


def _shape(shape: dict[str, Any]) -> str:
    """Return in words what one value may be."""
    if "$ref" in shape:
        return "a mapping; see its own section"
    if "const" in shape:
        return f"`{json.dumps(shape['const'])}`"
    if "enum" in shape:
        words = shape["enum"]
        few = " or ".join(f"`{each}`" for each in words)
        return few if len(words) <= _LONG else f"one of {len(words)} words, below"
    if "anyOf" in shape or "oneOf" in shape:
        return _alternatives(shape.get("anyOf") or shape["oneOf"])
    return _typed(shape)


def _typed(shape: dict[str, Any]) -> str:
    """Return in words what a value of one type of JSON may be."""
    kind = shape.get("type", "any value")
    named = [words for pattern, words in _PATTERNS.items() if pattern in shape.get("pattern", "")]
    if kind == "array":
        of = _shape(shape.get("items", {})).replace("a mapping; see its", "mappings; see their")
        return f"list of {of.replace('a name', 'names')}{_bounds(shape, 'Items', ' entries')}"
    if kind == "object":
        patterns = [*shape.get("patternProperties", {}).values(), {}]
        values = shape.get("additionalProperties") or patterns[0]
        return f"names, each with {_shape(values)}" if values else "a mapping"
    if named:
        return named[0]
    words = {"string": "text", "integer": "whole number", "boolean": "`true` or `false`"}
    return f"{words.get(kind, kind)}{_bounds(shape, 'imum', '')}"


def _alternatives(shapes: list[dict[str, Any]]) -> str:
    words = [_shape(each) for each in shapes]
    if len(words) == 2 and words[1].startswith(f"list of {words[0]}"):
        return f"{words[0]}, or a list of these{words[1].removeprefix(f'list of {words[0]}')}"
    return "; or ".join(dict.fromkeys(words))


def _bounds(shape: dict[str, Any], suffix: str, unit: str) -> str:
    least, most = shape.get(f"min{suffix}"), shape.get(f"max{suffix}")
    if least and most:
        return f" ({least:,} to {most:,}{unit})"
    if least == 1:
        return " (not empty)" if unit else " (1 or more)"
    return f" (at most {most:,}{unit})" if most else ""


# ----------------------------------------------------------------------------- commands


def commands() -> str:
    """Return every command with its arguments and options."""
    import typer

    from safeser.cli.app import app

    return "\n\n".join(
        _command(path, each) for path, each in _commands(typer.main.get_command(app))
    )


def _commands(command: Any, path: str = "safeser") -> Iterator[tuple[str, Any]]:
    for name, each in sorted(getattr(command, "commands", {}).items()):
        if hasattr(each, "commands"):
            yield from _commands(each, f"{path} {name}")
        else:
            yield f"{path} {name}", each


def _command(path: str, command: Any) -> str:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    words = [_name(each) for each in arguments]
    usage = " ".join([path, *(["[OPTIONS]"] if options else []), *words])
    lines = [f"### `{path}`", "", _paragraphs(command.help or ""), "", "```text", usage, "```"]
    rows = [(_name(each), each) for each in [*arguments, *options]]
    if rows:
        lines += ["", "| | does | default |", "| --- | --- | --- |"]
        lines += [
            f"| `{name}` | {_cell(each.help or '')} | {_default(each)} |" for name, each in rows
        ]
    return "\n".join(lines)


def _name(parameter: Any) -> str:
    metavar = parameter.metavar or ""
    if parameter.param_type_name == "argument":
        word = metavar or parameter.name.upper()
        return f"{word}..." if parameter.nargs == -1 and not word.endswith("...") else word
    return " ".join([", ".join(parameter.opts), *([metavar] if metavar else [])])


def _default(parameter: Any) -> str:
    if parameter.required:
        return "**required**"
    default = parameter.default
    if default in (None, False, "", (), []) or callable(default):
        return ""
    return f"`{' '.join(map(str, default)) if isinstance(default, tuple | list) else default}`"


def _paragraphs(text: str) -> str:
    """Return *text* with one line for each paragraph."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text.replace("\b", "").strip())


# ----------------------------------------------------------------------------- rules


def rules() -> str:
    """Return a table of the rules of each group, in the words of the code that refuses."""
    found: dict[str, set[tuple[str, str, str]]] = {}
    for path in sorted((ROOT / "safeser").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call) and (row := _row(call)):
                found.setdefault(row[0], set()).add(row[1:])
    groups: dict[str, list[str]] = {}
    for rule, rows in sorted(found.items()):
        group = groups.setdefault(rule.partition(".")[0], [])
        telling = {row for row in rows if any(row[1:])} or rows
        for error, says, fix in sorted(telling):
            group.append(f"| `{rule}` | {error} | {says} | {fix} |")
    head = "| rule | error | says | to change |\n| --- | --- | --- | --- |\n"
    return "\n\n".join(f"## `{name}`\n\n{head}" + "\n".join(rows) for name, rows in groups.items())


def _row(call: ast.Call) -> tuple[str, str, str, str] | None:
    keywords = {each.arg: each.value for each in call.keywords}
    rule = keywords.get("rule")
    if not (isinstance(rule, ast.Constant) and isinstance(rule.value, str) and rule.value):
        return None
    name = ast.unparse(call.func).rpartition(".")[2]
    error = f"`{name}`" if name.endswith(("Error", "Denied")) else ""
    says = _cell(_text(call.args[0])) if call.args else ""
    return rule.value, error, says, _cell(_text(keywords.get("fix")))


def _text(node: ast.expr | None) -> str:
    """Return a text that the code puts together, with … for what it fills in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return "…" if node is not None else ""


def _cell(text: str) -> str:
    """Return *text* as it stands in a cell of a table."""
    text = re.sub("…[…'\"]*…", "…", re.sub(r"\s+", " ", text).strip())
    for character in "\\|*_<>[]":
        text = text.replace(character, "\\" + character)
    return "" if text == "…" else text


MADE = {"policy-fields": policy_fields, "commands": commands, "rules": rules}
