"""Fingerprints of Dask's source, which tell whether a function was reviewed.

The one rule: a function whose source cannot be compared counts as unknown. A fingerprint is the
SHA-256 of a function's source, decorators included, without comments and white space and with
doubled braces collapsed. It depends neither on the minor version of Python nor on the formatting.

Computing the fingerprints of all patches takes a third of a second, so each tested release also has
a digest of the files that hold the functions: if the digest is known, all of them are.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import tokenize
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import Any

from safeser.dask.patches.patch import Patch, stock_of

#: The file that :mod:`verification.compat.fingerprints` writes.
DATA = "fingerprints.toml"

_BLANKS = re.compile(r"\s+")


def normalized(lines: Sequence[str], first: int) -> str:
    """Return the definition that begins in *lines* at index *first*, in the form that is hashed.

    Tokens are used only to find comments and the end of the block, since tokens of f-strings differ
    between the minor versions of Python.

    :raises ValueError: if no definition begins there.
    """
    finder = inspect.BlockFinder()  # what inspect.getsource uses
    comments: dict[int, str] = {}
    try:
        for token in tokenize.generate_tokens(iter(lines[first:]).__next__):
            if token.type == tokenize.COMMENT:
                comments[token.start[0]] = token.string
            finder.tokeneater(*token)
    except (inspect.EndOfBlock, IndentationError):
        pass  # the block ends where a line is indented less
    except (tokenize.TokenError, SyntaxError) as error:
        raise ValueError(f"no definition at line {first + 1}") from error
    if not finder.started:
        raise ValueError(f"no definition at line {first + 1}")
    block = lines[first : first + finder.last]
    kept = (
        line.rstrip().removesuffix(comments.get(at, "").rstrip())
        for at, line in enumerate(block, start=1)
    )
    return _BLANKS.sub("", "".join(kept)).replace("{{", "{").replace("}}", "}")


def fingerprint(definitions: Iterable[str]) -> str:
    """Return one fingerprint of all normalized *definitions*."""
    return hashlib.sha256("\n".join(definitions).encode()).hexdigest()


def installed(patch: Patch) -> str | None:
    """Return the fingerprint of the installed source that *patch* relies on; None without any."""
    try:
        return fingerprint(map(_definition, patch.sources))
    except (LookupError, OSError, TypeError, ValueError):
        return None


@cache
def _definition(source: str) -> str:
    """Return the definition of *source* in the installed Dask, normalized.

    :raises LookupError, OSError, TypeError, ValueError: if it or its source text is missing.
    """
    code = _code(source)
    return normalized(_lines(code.co_filename), code.co_firstlineno - 1)


def _code(source: str) -> CodeType:
    """Return the code of the function *source* in the installed Dask.

    :raises LookupError, TypeError: if it is missing.
    """
    return inspect.unwrap(_function(stock_of(source))).__code__  # type: ignore[no-any-return]  # _function proved it a function


@cache
def _lines(path: str) -> list[str]:
    with tokenize.open(path) as file:
        return file.readlines()


def _function(found: Any) -> Any:
    """Return the function behind a method's descriptor."""
    if isinstance(found, staticmethod | classmethod):
        return found.__func__
    if isinstance(found, property):
        found = found.fget
    dispatcher = getattr(found, "dispatcher", None)  # of functools.singledispatchmethod
    found = found.func if dispatcher is not None else found
    if not inspect.isfunction(found):
        raise TypeError("no function")
    return found


@dataclass(frozen=True, slots=True)
class KnownSources:
    """The fingerprints of reviewed source.

    :param releases: the reviewed releases of distributed, oldest first.
    :param targets: the fingerprints of each target.
    :param modules: the modules of Dask that hold the functions.
    :param digests: the digest of the files of *modules* in each release.
    """

    releases: tuple[str, ...]
    targets: Mapping[str, frozenset[str]]
    modules: tuple[str, ...] = ()
    digests: frozenset[str] = frozenset()


@cache
def known_sources() -> KnownSources:
    """Read the reviewed fingerprints from the file beside this module."""
    data = tomllib.loads(files(__package__).joinpath(DATA).read_text(encoding="utf-8"))
    targets = {target: frozenset(since.values()) for target, since in data["sources"].items()}
    return KnownSources(
        releases=tuple(data["releases"]),
        targets=MappingProxyType(targets),
        modules=tuple(data["modules"]),
        digests=frozenset(data["releases"].values()),
    )


def file_of(root: Path, module: str) -> Path:
    """Return the file of *module* below the folder *root*."""
    path = root.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def digest(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of the contents of *paths*, in their order.

    :raises OSError: if one of them cannot be read.
    """
    hashed = hashlib.sha256()
    for path in paths:
        hashed.update(hashlib.sha256(path.read_bytes()).digest())
    return hashed.hexdigest()


def _are_reviewed_files(patches: Iterable[Patch], known: KnownSources) -> bool:
    """Tell whether all functions that *patches* rely on are in files of a reviewed release.

    A function by which other code replaced Dask's own is in another file.
    """
    try:
        paths = {module: _installed_file(module) for module in known.modules}
        if digest(paths.values()) not in known.digests:
            return False
        sources = [source for each in patches for source in each.sources]
        return all(
            Path(_code(source).co_filename) == paths[source.partition(":")[0]] for source in sources
        )
    except (LookupError, OSError, TypeError, ValueError):
        return False


def _installed_file(module: str) -> Path:
    package = import_module(module.partition(".")[0])
    if package.__file__ is None:
        raise LookupError(module)
    path = Path(package.__file__)
    return file_of(path.parents[1] if path.stem == "__init__" else path.parent, module)


def unknown(patches: Iterable[Patch]) -> list[Patch]:
    """Return the *patches* whose sources in the installed Dask differ from the reviewed ones.

    Call it before any of them is applied.
    """
    patches, known = list(patches), known_sources()
    targets = known.targets
    if all(each.target in targets for each in patches) and _are_reviewed_files(patches, known):
        return []
    try:
        return [each for each in patches if installed(each) not in targets.get(each.target, ())]
    finally:
        _definition.cache_clear()
        _lines.cache_clear()  # megabytes of text
