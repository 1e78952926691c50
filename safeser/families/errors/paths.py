"""Remove the folders of a server from the file names in failures.

The one rule: a traceback names a library's file relative to the library's own folder, and a
server's report of its own failure names no folder. Whatever looks like an absolute path is cut,
because no list of folders is complete.
"""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from safeser.families.errors.failures import ExceptionData, shown
from safeser.families.errors.raising import called

__all__ = ["relative_frames", "withheld", "withheld_text"]

#: How Python writes the place of a frame, those of groups behind bars.
_FRAME = re.compile(
    r'^(?P<before>[ |]{0,64}File ")(?P<file>[^"\n]+)(?P<after>", line )', re.MULTILINE
)

#: Packages that need not be installed where others are: a checkout may be imported.
_PACKAGES = ("safeser", "dask", "distributed")

#: Where an absolute path begins: at its root, drive or share, and not inside a word or a number.
_BEGINNING = r"(?:(?<![\w.])/(?=[^\s/])|(?<!\w)[A-Za-z]:[\\/](?=\S)|(?<![\w\\])\\\\(?=\w))"
_PATH = re.compile(_BEGINNING)

#: An absolute path in quotes, as repr() writes it, and an address, which names a machine's port or
#: service and no file of this one.
_APART = re.compile(
    rf"""(?P<quoted>(?<!\w)(?P<quote>['"])(?={_BEGINNING})(?:\\.|(?!(?P=quote)(?!\w))[^\\])*
         (?P=quote)(?!\w))
       | \b(?!file:)[A-Za-z][\w+.-]{{0,15}}://[^\s/'"][^\s'"]*""",
    re.VERBOSE,
)


def relative_frames(text: str) -> str:
    """Return a formatted traceback whose frames name library files from the library's root on.

    ``File "/opt/venv/lib/python3.12/site-packages/distributed/core.py"`` becomes
    ``File "distributed/core.py"``. Other files keep their names.
    """
    return _FRAME.sub(lambda match: _frame(match, _relative(match["file"])), text)


def withheld_text(text: str) -> str:
    """Return a message or traceback that names no folder of this process."""
    named = _FRAME.sub(lambda match: _frame(match, _named(match["file"])), text)
    return _without_folders(named)


def withheld(data: ExceptionData) -> ExceptionData:
    """Return a failure that names no folder of this process, in any of its parts."""
    return _withheld(data, {})


def _withheld(each: ExceptionData, told: dict[int, ExceptionData]) -> ExceptionData:
    """Return *each* so, once for each cause, however many refer to it."""
    if id(each) not in told:
        args = None if each.args is None else _plain(each.args)
        fields = _plain(each.fields)
        told[id(each)] = replace(
            each,
            message=_message(each, args, fields),
            args=args,
            fields=fields,
            traceback=withheld_text(each.traceback),
            notes=tuple(map(_without_folders, each.notes)),
            state=tuple(map(_without_folders, each.state)),
            cause=None if each.cause is None else _withheld(each.cause, told),
            context=None if each.context is None else _withheld(each.context, told),
            members=tuple(_withheld(member, told) for member in each.members),
        )
    return told[id(each)]


def _message(data: ExceptionData, args: tuple[Any, ...] | None, fields: dict[str, Any]) -> str:
    """Return the message that the class gives for *args*, as the receiver would compute it."""
    before = None if data.args is None else _said(data.type, data.args, data.fields)
    after = None if args is None else _said(data.type, args, fields)
    if before == data.message and after is not None:
        return after
    return _without_folders(data.message)


def _said(name: str, args: tuple[Any, ...], fields: dict[str, Any]) -> str | None:
    try:
        made = called(name, args, fields)
        return None if made is None else shown(str(made))
    except Exception:  # a listed constructor that dislikes the arguments
        return None


def _plain(value: Any) -> Any:
    """Return a plain value whose texts name no folders."""
    if type(value) is str:
        return _without_folders(value)
    if type(value) is bytes:
        return os.fsencode(_without_folders(os.fsdecode(value)))
    if type(value) in (tuple, list):
        return type(value)(map(_plain, value))
    if type(value) is dict:
        return {key: _plain(item) for key, item in value.items()}
    return value


def _frame(match: re.Match[str], file: str) -> str:
    return f"{match['before']}{file}{match['after']}"


def _named(file: str) -> str:
    """Return a file of a library from its root on, and of any other its last component."""
    relative = _relative(file)
    return _last(file) if relative == file else relative


def _relative(file: str) -> str:
    for folder, root in _libraries():
        if file.startswith(folder):
            return file[len(root) :].replace(os.sep, "/")
    return file


@cache
def _libraries() -> tuple[tuple[str, str], ...]:
    """Return folders of libraries, the longest first, each with the part that is not told."""
    found = {
        (os.path.join(real(folder), ""), os.path.join(real(root), ""))
        for folder, root in _folders()
        for real in (os.path.abspath, os.path.realpath)
    }
    return tuple(sorted(found, key=lambda pair: (-len(pair[0]), pair)))


def _folders() -> Iterator[tuple[str, str]]:
    paths = sysconfig.get_paths()
    roots = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    yield from ((root, root) for root in (*roots, *site.getsitepackages()))
    yield (site.getusersitepackages(),) * 2
    for package in _PACKAGES:
        file = getattr(sys.modules.get(package), "__file__", None)
        if file:
            folder = os.path.dirname(file)
            yield folder, os.path.dirname(folder)


def _without_folders(text: str) -> str:
    """Return *text* with the last component in place of each absolute path in it.

    Where a path without quotes ends cannot be told: it may hold blanks. So everything up to the
    last separator of its line goes, other text between two paths included.
    """
    return "\n".join(map(_line, text.split("\n")))


def _line(line: str) -> str:
    kept, start = [], 0
    for match in _APART.finditer(line):
        kept += [_cut(line[start : match.start()]), _literal(match)]
        start = match.end()
    return "".join([*kept, _cut(line[start:])])


def _literal(match: re.Match[str]) -> str:
    if match["quoted"] is None:
        return match[0]
    quote = match["quote"]
    return f"{quote}{_last(match[0][1:-1])}{quote}"


def _cut(text: str) -> str:
    begins = _PATH.search(text)
    if begins is None:
        return text
    ends = max(text.rfind("/"), text.rfind("\\")) + 1
    return text[: begins.start()] + text[ends:]


def _last(path: str) -> str:
    return re.split(r"[\\/]+", path.rstrip("\\/"))[-1]
