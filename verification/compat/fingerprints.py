"""Write the fingerprints of what safeser replaces of Dask, from unpacked wheels of all releases.

``python -m verification.compat.fingerprints --sources DIR`` reads
``DIR/<release>/{dask,distributed}`` and writes ``safeser/dask/patches/fingerprints.toml``. Its diff
is what a reviewer reads: a new line is a function that has changed, and that has to be compared
with what replaces it.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from safeser.dask import patches
from safeser.dask.patches import PATCHES
from safeser.dask.patches.fingerprints import DATA, digest, file_of, fingerprint, normalized

HEADER = """\
# What safeser replaces of Dask, as it was reviewed. Written by
#     python -m verification.compat.fingerprints --sources DIR
# The digest of each release is that of the files of all modules; beside it stands, for each row of
# safeser/dask/patches, from which release on its source has which fingerprint.

"""


def releases_in(sources: Path) -> list[str]:
    """Return the releases below *sources*, the oldest first."""
    named = [path.name for path in sources.iterdir() if (path / "distributed").is_dir()]
    return sorted(named, key=lambda name: tuple(map(int, name.split("."))))


@cache
def parsed(path: Path) -> tuple[list[str], ast.Module]:
    text = path.read_text(encoding="utf-8")
    return text.splitlines(keepends=True), ast.parse(text)


def definition(root: Path, source: str) -> str:
    """Return the function *source*, ``module:Class.name``, below *root*, normalized.

    :raises LookupError: if there is none.
    """
    module, _, path = source.partition(":")
    lines, found = parsed(file_of(root, module))
    node: ast.AST = found
    for name in path.split("."):
        named = [each for each in _definitions(node) if each.name == name]
        if not named:
            raise LookupError(source)
        node = named[-1]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef), source
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return normalized(lines, first - 1)


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definitions(node: ast.AST) -> Iterator[_Definition]:
    """Yield what *node* defines, also below ``if`` and ``try``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Definition):
            yield child
        elif isinstance(child, ast.If | ast.Try):
            yield from _definitions(child)


def found_in(sources: Path) -> dict[str, dict[str, str]]:
    """Return, for each target, its fingerprints by the release from which on it has them."""
    every: dict[str, dict[str, str]] = {}
    for patch in PATCHES:
        since = every[patch.target] = {}
        latest = None
        for release in releases_in(sources):
            root = sources / release
            made = fingerprint(definition(root, source) for source in patch.sources)
            if made != latest:
                since[release] = latest = made
    return every


def modules() -> list[str]:
    """Return the modules of Dask that have what the rows rely on."""
    return sorted({source.partition(":")[0] for each in PATCHES for source in each.sources})


def digests_in(sources: Path) -> dict[str, str]:
    """Return the digest of each release below *sources*."""
    return {
        release: digest(file_of(sources / release, module) for module in modules())
        for release in releases_in(sources)
    }


def text_of(digests: dict[str, str], found: dict[str, dict[str, str]]) -> str:
    """Return the text of the file: TOML that :func:`known_sources` reads."""
    lines = [HEADER, "modules = [\n", *(f'    "{each}",\n' for each in modules()), "]\n"]
    lines.append("\n[releases]\n")
    lines += [f'"{release}" = "{made}"\n' for release, made in digests.items()]
    for target in sorted(found):
        lines.append(f'\n[sources."{target}"]\n')
        lines += [f'"{release}" = "{made}"\n' for release, made in found[target].items()]
    return "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=Path, required=True, help="a folder of each release")
    sources = parser.parse_args().sources
    written = Path(patches.__file__).with_name(DATA)
    digests = digests_in(sources)
    written.write_text(text_of(digests, found_in(sources)), encoding="utf-8")
    print(f"{written}: {len(PATCHES)} rows, {len(digests)} releases")


if __name__ == "__main__":
    main()
