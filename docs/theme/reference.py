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
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
    "[0-9]{4}-[0-9]{2}": "a date, `'2026-12-31'`",
    "queue ": "`refuse`, `go-on`, or text like `queue 1000`",
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


def _shape(shape: dict[str, Any] | bool) -> str:
    """Return in words what one value may be."""
    if isinstance(shape, bool):  # JSON Schema's words for anything, and for nothing
        return "any value"
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


@cache
def declared() -> dict[str, set[tuple[str, str, str]]]:
    """Return each rule that the code names, with its errors, messages and remedies."""
    paths = sorted((ROOT / "safeser").rglob("*.py"))
    modules = {path: _Module.of(ast.parse(path.read_text("utf-8"))) for path in paths}
    makers = _makers(modules)
    found: dict[str, set[tuple[str, str, str]]] = {}
    for path, module in modules.items():
        for call in module.calls:
            for rule, *row in _rows(call, _maker_of(call, path, makers)):
                found.setdefault(rule, set()).add((row[0], row[1], row[2]))
    return found


def rules() -> str:
    """Return a table of the rules of each group, in the words of the code that refuses."""
    groups: dict[str, list[str]] = {}
    for rule, rows in sorted(declared().items()):
        group = groups.setdefault(rule.partition(".")[0], [])
        telling = {row for row in rows if any(row[1:])} or rows
        for error, says, fix in sorted(telling):
            group.append(f"| `{rule}` | {error} | {says} | {fix} |")
    head = "| rule | error | says | to change |\n| --- | --- | --- | --- |\n"
    return "\n\n".join(f"## `{name}`\n\n{head}" + "\n".join(rows) for name, rows in groups.items())


class _Maker(NamedTuple):
    """A function that makes or raises an error by the rule that it is given.

    :param parameters: its parameters in order, without ``self``.
    :param rule: the one that is the rule, or what follows *prefix* in it.
    :param message: the one that is the message; empty if it takes none.
    """

    error: str
    parameters: tuple[str, ...]
    rule: str
    message: str
    prefix: str = ""

    def argument(self, call: ast.Call, parameter: str) -> ast.expr | None:
        """Return what *call* gives for *parameter*."""
        for keyword in call.keywords:
            if keyword.arg == parameter:
                return keyword.value
        if parameter not in self.parameters:
            return None
        at = self.parameters.index(parameter)
        return call.args[at] if at < len(call.args) else None


#: A denied decision takes its rule second, and becomes a PolicyDenied.
_DECISION = _Maker("PolicyDenied", ("permitted", "rule", "reason"), "rule", "reason")

#: What policy lint reports is no error.
_FINDING = _Maker("", ("rule", "message", "fix"), "rule", "message")

_VALUES = {"Decision": _DECISION, "Finding": _FINDING}

_RULE = re.compile(r"[a-z]+(\.[a-z0-9-]+)+")


def _error(name: str) -> _Maker:
    """Return how an exception class of that *name* takes its rule, if it is one of safeser's."""
    if name in _VALUES:
        return _VALUES[name]
    named = name if name.endswith(("Error", "Denied")) else ""
    return _Maker(named, ("message",), "rule", "message")


class _Module(NamedTuple):
    """What is looked for in a module; its tree is walked once, since that takes the time.

    :param functions: each with the calls in it.
    """

    calls: tuple[ast.Call, ...]
    functions: tuple[tuple[ast.FunctionDef, tuple[ast.Call, ...]], ...]
    imports: dict[str, tuple[Path, str]]

    @classmethod
    def of(cls, tree: ast.Module) -> _Module:
        nodes = list(ast.walk(tree))
        functions = [each for each in nodes if isinstance(each, ast.FunctionDef)]
        return cls(
            _calls(nodes),
            tuple((each, _calls(ast.walk(each))) for each in functions),
            dict(_imports(nodes)),
        )


def _calls(nodes: Iterable[ast.AST]) -> tuple[ast.Call, ...]:
    return tuple(each for each in nodes if isinstance(each, ast.Call))


def _makers(modules: Mapping[Path, _Module]) -> dict[tuple[Path | None, str], _Maker]:
    """Return the functions that pass their own parameter on as a rule, by module and name.

    Methods stand under None, since the type of an object is not known here.
    """
    makers: dict[tuple[Path | None, str], _Maker] = {}
    for _ in range(4):  # one that calls another, or is imported, comes after it
        for path, module in modules.items():
            for name, origin in module.imports.items():
                if origin in makers:
                    makers[path, name] = makers[origin]
            for function, calls in module.functions:
                made = _maker(function, calls, path, makers)
                if made is not None:
                    makers[path, function.name] = made
                    if function.args.args and function.args.args[0].arg == "self":
                        makers.setdefault((None, function.name), made)
    return makers


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, tuple[Path, str]]]:
    """Yield the names that a module imports of others of safeser's, each with its origin."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("safeser"):
            path = ROOT.joinpath(*(node.module or "").split("."))
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            for each in node.names:
                yield each.asname or each.name, (file, each.name)


def _maker(
    function: ast.FunctionDef,
    calls: Iterable[ast.Call],
    path: Path,
    makers: Mapping[tuple[Path | None, str], _Maker],
) -> _Maker | None:
    given = [each.arg for each in function.args.args if each.arg not in ("self", "cls")]
    known = {*given, *(each.arg for each in function.args.kwonlyargs)}
    for call in calls:
        inner = _maker_of(call, path, makers)
        prefix, rule = _parameter(inner.argument(call, inner.rule))
        if rule in known:
            message = _parameter(inner.argument(call, inner.message))[1]
            message = message if message in known else ""
            return _Maker(inner.error, tuple(given), rule, message, inner.prefix + prefix)
    return None


def _parameter(node: ast.expr | None) -> tuple[str, str]:
    """Return the text before a name, and the name, of an expression that is no more than both."""
    match node:
        case ast.Name(id=name):
            return "", name
        case ast.JoinedStr(
            values=[ast.Constant(value=str(before)), ast.FormattedValue(value=ast.Name(id=name))]
        ):
            return before, name
        case ast.JoinedStr(values=[ast.FormattedValue(value=ast.Name(id=name)), *_]):
            return "", name
    return "", ""


def _maker_of(
    call: ast.Call, path: Path, makers: Mapping[tuple[Path | None, str], _Maker]
) -> _Maker:
    match call.func:
        case ast.Attribute(attr=name):
            return makers.get((path, name)) or makers.get((None, name)) or _error(name)
        case ast.Name(id=name):
            return makers.get((path, name)) or _error(name)
    return _error("")


def _rows(call: ast.Call, maker: _Maker) -> Iterator[tuple[str, str, str, str]]:
    """Yield the rules that *call* names, each with error, message and remedy."""
    named = maker.argument(call, maker.rule)
    each = [named.body, named.orelse] if isinstance(named, ast.IfExp) else [named]
    for rule in each:
        if isinstance(rule, ast.Constant) and isinstance(rule.value, str) and rule.value:
            whole = maker.prefix + rule.value
            if _RULE.fullmatch(whole):
                error = f"`{maker.error}`" if maker.error else ""
                says = _cell(_text(maker.argument(call, maker.message)))
                yield whole, error, says, _cell(_text(maker.argument(call, "fix")))


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
