"""The list of patches is whole: nothing of Dask is replaced elsewhere, and nothing unreviewed."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from types import MethodType, SimpleNamespace

import distributed
import pytest
from distributed.core import _expects_comm

import safeser
from safeser.dask import patches
from safeser.dask.patches import PATCHES, Patch, fingerprints, install, require_known
from safeser.dask.patches.fingerprints import (
    KnownSources,
    digest,
    file_of,
    fingerprint,
    known_sources,
    normalized,
)
from safeser.dask.patches.patch import apply, rebind, stock_of
from safeser.dask.servers import Part
from safeser.errors import ConfigError
from safeser.operations import Server
from tests.dask.assignments import modules_of, replaced_in
from tests.dask.patched import Peer, serve, undo
from verification.compat.fingerprints import definition, modules

PROGRAM = Path(__file__).parent / "programs" / "changed.py"
PACKAGE = Path(safeser.__file__).parent

# --- nothing else --------------------------------------------------------------------------------


@pytest.mark.cluster
def test_what_differs_in_a_process_is_the_list_and_nothing_else(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir(mode=0o700)
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["targets"] == sorted(each.target for each in PATCHES)
    assert found["changed"] == found["targets"]
    assert found["foreign"] == []


@pytest.mark.slow
@pytest.mark.unmeasured
def test_no_other_module_replaces_anything_of_dask():
    places = [
        f"{path.relative_to(PACKAGE)}:{line}: {code}"
        for path in modules_of(PACKAGE, but=PACKAGE / "dask" / "patches")
        for line, code in replaced_in(path.read_text(encoding="utf-8"))
    ]
    assert places == []


# --- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "given"),
    [("no colon", {"by": print}), ("a:b", {}), ("a:b", {"by": print, "value": 1})],
)
def test_a_row_names_one_target_and_one_thing_that_takes_over(target, given):
    with pytest.raises(ValueError):
        Patch(target=target, reason="r.", **given)


def test_at_most_fifteen_rows_have_code_of_their_own():
    """Any other names a part with its method, or a function, of the module that decides."""
    own = [each.target for each in PATCHES if is_own(each)]
    assert len(own) <= 15, own


def is_own(patch):
    taking = patch.by[1] if isinstance(patch.by, tuple) else patch.by
    taking = next(each for each in (taking, patch.value, patch.replace) if each is not None)
    return getattr(taking, "__module__", "").startswith(patches.__name__)


class Kept(Part):
    def called(self, stock, *args):
        return self._known.role, stock(*args)

    def asked(self, stock, comm, *args):
        return comm, stock(*args)


class Stock:
    def plain(self, x):
        return x

    async def later(self, x):
        return x


@pytest.mark.parametrize("via", [(), ("server",)])
def test_a_row_delegates_to_a_part_of_the_server(via):
    def replaced(name, method):
        given = row("a:Stock.x", replace=None, by=(Kept, method), via=via)
        return given.replacement(vars(Stock)[name])

    made, peer = Stock(), Peer()
    made.server = Stock() if via else None
    serve(made.server or made, Server.WORKER, SimpleNamespace())
    assert replaced("plain", Kept.called)(made, 1) == (Server.WORKER, 1)
    asked = replaced("plain", Kept.asked)
    assert _expects_comm(MethodType(asked, made))
    assert asked(made, peer, 1) == (peer, 1)
    assert asked(made, 1) == (None, 1)
    assert asked(Stock(), peer, 1) == 1  # of a server that is not registered
    assert iscoroutinefunction(replaced("later", Kept.asked))


# --- fingerprints --------------------------------------------------------------------------------

TEXT = '''\
class Example:
    @decorated(  # which takes one
        "a # b"
    )
    async def method(self, *, key: str) -> dict[str, int]:
        """Text that counts.  # and this, too"""
        # A comment.
        told = f"{key!r:>{10}} {{not}} {self.of['x']}"  # another

        if told:  # the last one
            return {
                key: 1,
            }
        return {}
    # after it

    def other(self): ...
'''


def of(text: str) -> str:
    lines = text.splitlines(keepends=True)
    first = next(at for at, line in enumerate(lines) if "@decorated" in line or "def " in line)
    return normalized(lines, first)


def test_a_fingerprint_is_the_same_in_every_version_of_python():
    """The figure was computed with CPython 3.11.7, 3.12.1 and 3.13.0."""
    assert fingerprint([of(TEXT)]) == FIGURE


FIGURE = "f06a81b3ac88818905127610926a6b80fa54f8db0f952b58df48bca99c2ccc9e"


@pytest.mark.parametrize(
    ("changed", "to"),
    [
        ("        # A comment.\n", ""),
        ("  # another", "   #   other"),
        ("\n        if told:", "\n\n\n        if told:"),
        ("key: 1,\n            }", "key: 1, }"),
        ("def other(self)", "def others(self)"),
    ],
)
def test_layout_and_what_comes_after_changes_no_fingerprint(changed, to):
    assert changed in TEXT
    assert of(TEXT.replace(changed, to)) == of(TEXT)


@pytest.mark.parametrize(
    ("changed", "to"),
    [
        ("key: 1", "key: 2"),
        ("# and this, too", "# and that, too"),
        ('"a # b"', '"a # c"'),
        ("async def", "def"),
        ("@decorated", "@others"),
        ("return {}", "return None"),
    ],
)
def test_anything_else_changes_it(changed, to):
    assert changed in TEXT
    assert of(TEXT.replace(changed, to)) != of(TEXT)


def test_the_file_has_each_row():
    known = known_sources()
    assert set(known.targets) == {each.target for each in PATCHES}
    assert all(known.targets.values())


def test_the_file_has_the_installed_release():
    known = known_sources()
    assert distributed.__version__ in known.releases
    here = Path(distributed.__file__).parent.parent
    for each in PATCHES:
        found = fingerprint(definition(here, source) for source in each.sources)
        assert found in known.targets[each.target], each.target


def test_the_file_has_the_digest_of_the_installed_release():
    here = Path(distributed.__file__).parent.parent
    known = known_sources()
    assert known.modules == tuple(modules())
    assert digest(file_of(here, module) for module in known.modules) in known.digests


@pytest.mark.parametrize("changed", ["file", "function"])
def test_a_known_release_is_known_by_its_files_only_while_its_functions_are_in_them(
    other, monkeypatch, changed
):
    path = Path(other.__file__)
    known = KnownSources(
        ("1.0", distributed.__version__),
        {"patched_module:plain": frozenset()},  # by its text the function is unknown
        ("patched_module",),
        frozenset([digest([path])]),
    )
    monkeypatch.setattr(fingerprints, "known_sources", lambda: known)
    rows = [row("patched_module:plain")]
    assert fingerprints.unknown(rows) == []
    if changed == "file":
        path.write_text(MODULE + "# more\n")
    else:
        other.plain = of
    assert fingerprints.unknown(rows) == rows


# --- the loop ------------------------------------------------------------------------------------

MODULE = """\
def plain(x):
    return x

class Kind:
    def method(self):
        return "stock"

TABLE = {"there": 1}
"""


@pytest.fixture
def other(tmp_path, monkeypatch):
    """A module to be patched, all of whose functions were reviewed."""
    (tmp_path / "patched_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "patched_module", raising=False)
    rows = {name: row(f"patched_module:{name}") for name in ("plain", "Kind.method")}
    reviewed = {each.target: frozenset([fingerprints.installed(each)]) for each in rows.values()}
    fingerprints._definition.cache_clear()
    fingerprints._lines.cache_clear()
    know(monkeypatch, reviewed)
    yield import_module("patched_module")
    for each in rows.values():
        if patches.is_applied(each):
            undo(each)


def know(monkeypatch, reviewed):
    known = KnownSources(("1.0", distributed.__version__), reviewed)
    monkeypatch.setattr(fingerprints, "known_sources", lambda: known)
    monkeypatch.setattr(patches, "known_sources", lambda: known)


def row(target, *, needed=True, replace=lambda stock: lambda *args: "own", **more):
    return Patch(target=target, reason="It matters.", needed=needed, replace=replace, **more)


def test_known_rows_are_installed_once(other):
    rows = [row("patched_module:plain"), row("patched_module:Kind.method")]
    before = other.Kind().method
    install(rows)
    assert (other.plain(1), other.Kind().method()) == ("own", "own")
    assert other.plain.__name__ == "plain"
    assert not hasattr(other.plain, "__wrapped__")
    made = other.plain
    install(rows)
    assert other.plain is made
    # A server that was made before handles by the replacement.
    server = SimpleNamespace(handlers={"m": before, "f": print}, stream_handlers=None)
    assert before() == "stock"
    rebind(server)
    assert server.handlers["m"]() == "own"
    assert server.handlers["m"].__self__ is before.__self__
    assert server.handlers["f"] is print
    rebind(object())


def test_an_unknown_needed_row_installs_nothing_and_names_itself(other, monkeypatch):
    known = fingerprints.known_sources().targets
    know(monkeypatch, {**known, "patched_module:Kind.method": frozenset(["0" * 64])})
    rows = [row("patched_module:plain"), row("patched_module:Kind.method")]
    with pytest.raises(ConfigError) as caught:
        install(rows)
    assert caught.value.rule == "config.distributed-version"
    assert "patched_module:plain" not in str(caught.value)
    assert f"from 1.0 to {distributed.__version__}" in str(caught.value)
    assert other.plain(1) == 1
    with pytest.raises(ConfigError):
        require_known(rows)


def test_a_newer_release_whose_source_is_known_says_once_that_it_is_untested(
    other, monkeypatch, caplog
):
    monkeypatch.setattr(patches, "version", lambda _: "2099.1.0")
    rows = [row("patched_module:plain"), row("patched_module:Kind.method")]
    with caplog.at_level(logging.WARNING):
        install(rows)
        install(rows)
    [said] = [each.getMessage() for each in caplog.records]
    assert said.startswith("distributed 2099.1.0 is untested")
    assert distributed.__version__ in said
    assert other.Kind().method() == "own"


def test_a_newer_release_whose_source_differs_starts_nothing(other, monkeypatch):
    monkeypatch.setattr(patches, "version", lambda _: "2099.1.0")
    with pytest.raises(ConfigError, match=r"2099\.1\.0 is not supported"):
        install([row("patched_module:plain"), row("patched_module:gone")])
    assert other.plain(1) == 1


def test_an_unknown_row_that_is_not_needed_is_left_out_with_one_warning(other, monkeypatch, caplog):
    know(monkeypatch, {"patched_module:plain": known_sources_of(other)})
    rows = [row("patched_module:plain"), row("patched_module:Kind.method", needed=False)]
    with caplog.at_level(logging.WARNING):
        install(rows)
    assert (other.plain(1), other.Kind().method()) == ("own", "stock")
    [said] = [each.getMessage() for each in caplog.records]
    assert "patched_module:Kind.method" in said
    install(rows)
    assert len(caplog.records) == 1


def known_sources_of(other):
    return fingerprints.known_sources().targets["patched_module:plain"]


@pytest.mark.parametrize(
    "target",
    [
        "patched_module:gone",
        "patched_module:Kind.gone",
        "patched_module:Gone.method",
        "gone_module:x",
        "patched_module:TABLE",
        "patched_module:Kind",
        "patched_module:GONE[x]",
    ],
)
def test_what_is_not_there_or_has_no_text_is_unknown(other, target):
    with pytest.raises(ConfigError):
        install([row(target)])


def test_a_function_whose_file_is_gone_is_unknown(other, tmp_path):
    (tmp_path / "patched_module.py").unlink()
    with pytest.raises(ConfigError):
        install([row("patched_module:plain")])


def test_items_of_dictionaries_are_targets_too(other, monkeypatch):
    new, old = (
        row(f"patched_module:TABLE[{key}]", replace=lambda stock: stock) for key in ("new", "there")
    )
    assert stock_of(new.target) is None
    apply(new)
    apply(old)
    assert other.TABLE == {"there": 1, "new": None}
    undo(old)
    undo(new)
    assert other.TABLE == {"there": 1}


def test_a_module_that_was_not_imported_is_not_imported_for_that(monkeypatch):
    late = row("a_module_that_nobody_has:x", when_imported=True)
    assert late.waits
    install([late])
    assert not row("json:loads", when_imported=True).waits
