"""One vector for each published way past a pickle scanner or a restricted unpickler.

Each says the class of mistake that let it through elsewhere; the rule is what stops it here. Rows
that are about containers, channels or keys have their tests in the packages concerned, and
docs/explanation/verification.md lists which.
"""

from __future__ import annotations

import copyreg
import resource
import struct
import sys
from typing import Any

import pytest

from safeser.errors import SafeserError
from safeser.pickles import DATA_PROFILES, inspect, loads

FIRE = "safeser_trap:fire"

_MINUS = b"J\xff\xff\xff\xff"

#: Name: the rule that refuses it, and its recipe.
VECTORS = {
    # A scanner keeps the memo otherwise than the machine does, and sees a harmless name.
    "picklescan 14: a memo slot is written twice": (
        "pickle.memo",
        lambda a: a.text("os") + b"q\0" + a.text("math") + b"q\0" + a.text("pi") + b"\x93",
    ),
    "picklescan 22: MEMOIZE counts otherwise than BINPUT": (
        "pickle.memo",
        lambda a: a.text("os") + b"q\1" + a.text("math") + b"\x94" + a.text("system") + b"\x93",
    ),
    "picklescan 23: the last string is not the name": (
        "pickle.global",
        lambda a: (
            a.text("os") + b"q\0" + a.text("math") + b"q\1" + a.text("pi") + b"q\x02000"
            b"h\0" + a.text("system") + b"\x93"
        ),
    ),
    "picklescan 52: a memo key that was never written": ("pickle.memo", lambda _: b"h\7"),
    "picklescan 52: a memo entry that is no string": (
        "pickle.name",
        lambda a: b"K\1q\0" + a.text("x") + b"h\0\x93",
    ),
    # State for a function or module, that is for the whole process.
    "modelscan 85: BUILD on a function": (
        "pickle.build-target",
        lambda a: a.build(a.name("numpy:prod"), a.dict(a.text("a"), a.name("os:system"))),
    ),
    "modelscan 85: a dotted way to what was set": (
        "pickle.global",
        lambda a: a.name("numpy:prod.a"),
    ),
    "modelscan 89: builtins by way of a listed module": (
        "pickle.global",
        lambda a: a.name("numpy:__builtins__.get"),
    ),
    "BUILD on a listed class": (
        "pickle.build-target",
        lambda a: a.build(a.name("fractions:Fraction"), a.dict(a.text("x"), b"N")),
    ),
    # A deserializer within.
    "picklescan 25: a pickle within a pickle": (
        "pickle.global",
        lambda a: a.call("pickle:loads", a.raw(b"N.")),
    ),
    "sglang: a loader of one's own": (
        "pickle.global",
        lambda a: a.call("sglang.srt.utils.patch_torch:dynamic_import", a.text("os.system")),
    ),
    "sglang: a pickle in a wrapper": (
        "pickle.global",
        lambda a: a.call("sglang.srt.managers.io_struct:PickleWrapper", a.raw(b"N.")),
    ),
    "TensorRT-LLM: torch's storage loader": (
        "pickle.global",
        lambda a: a.call("torch.storage:_load_from_bytes", a.raw(b"N.")),
    ),
    # Names that are matched by their beginning, their end, or a part.
    "ragflow 1240: a module below a listed one": (
        "pickle.global",
        lambda a: a.call("numpy.f2py.diagnose:run_command", a.text("true")),
    ),
    "CVE-2025-10157: a submodule": (
        "pickle.global",
        lambda a: a.call("asyncio.unix_events:_UnixSubprocessTransport"),
    ),
    "GHSA-5j3x-jp52-966f: a dotted name in a listed module": (
        "pickle.global",
        lambda a: a.call("pathlib:os.system", a.text("true")),
    ),
    "GHSA-q5qq: a module that re-exports": ("pickle.global", lambda a: a.name("uuid:sys.modules")),
    "Paddle 79764: a listed module's own import": (
        "pickle.global",
        lambda a: a.call("numpy.core.numeric:builtins.eval", a.text("1")),
    ),
    "Airflow: a name that begins as a listed one": (
        "pickle.global",
        lambda a: a.name("collections:OrderedDict_Malicious"),
    ),
    "agent-framework 5923: types by prefix": (
        "pickle.global",
        lambda a: a.name("types:FunctionType"),
    ),
    "agent-framework 7432: globals of a method": (
        "pickle.global",
        lambda a: a.name("collections:deque.__init__.__globals__"),
    ),
    # Reflection that a list let through.
    "sglang CVE-2025-10164: getattr": (
        "pickle.global",
        lambda a: a.call("builtins:getattr", a.call("builtins:__import__", a.text("os")), b"N"),
    ),
    "sglang CVE-2026-15969: attrgetter on a module's import": (
        "pickle.global",
        lambda a: a.call(
            a.call("operator:attrgetter", a.text("modules")), a.name("pickletools:sys")
        ),
    ),
    "GHSA-vvpj-8cmc-gx39: resolve_name": (
        "pickle.global",
        lambda a: a.call("pkgutil:resolve_name", a.text("os:system")),
    ),
    # Names of functions and methods, which an object carries and whoever loads it looks up.
    "skops CVE-2025-54412: a function of operator by its name": (
        "pickle.arguments",
        lambda a: a.call("operator:methodcaller", a.text("tofile"), a.text("x")),
    ),
    "skops CVE-2025-54413: a method of an object that is built": (
        "pickle.arguments",
        lambda a: a.call(
            "builtins:getattr", a.call("collections:deque"), a.text("__init_subclass__")
        ),
    ),
    "skops 506: a function in the place of a loss": (
        "pickle.global",
        lambda a: a.build(
            a.new("sklearn.linear_model._stochastic_gradient:SGDClassifier"),
            a.dict(a.text("loss_function_"), a.name(FIRE)),
        ),
    ),
    # What is called, but left out of what is judged.
    "GHSA-mxhj-88fx-4pcv: the result is thrown away": (
        "pickle.global",
        lambda a: a.call(FIRE) + b"0N",
    ),
    "GHSA-mxhj-88fx-4pcv: by OBJ": ("pickle.global", lambda a: b"(" + a.name(FIRE) + b"o0N"),
    "GHSA-mxhj-88fx-4pcv: by INST": ("pickle.global", lambda _: b"(isafeser_trap\nfire\n0N"),
    "GHSA-h4rm: builtins": ("pickle.global", lambda a: a.call("builtins:exec", a.text("1"))),
    # What a reader does when it can't read on.
    "GHSA-9gvj-pp9x-gcfr: a broken end after the call": (
        "pickle.opcode",
        lambda a: a.call(FIRE) + b"\xff",
    ),
    "modelscan 348: a cut string after the call": (
        "pickle.truncated",
        lambda a: a.call(FIRE) + b"X\xff\xff\xff\x7f",
    ),
    # CPython's readers disagree.
    "gh-154848: an opcode crosses the end of a frame": (
        "pickle.frame",
        lambda a: b"\x95" + struct.pack("<Q", 3) + a.text("harmless") + b"0" + a.call(FIRE),
    ),
    "gh-135321: BINSTRING of a negative length": (
        "pickle.truncated",
        lambda _: b"T\xff\xff\xff\xff" + b"N",
    ),
    "gh-144410: a PUT index beyond the memo": ("pickle.memo", lambda _: b"Np4294967297\n"),
    "gh-144410: a PUT index with a sign": ("pickle.memo", lambda _: b"Np+0\n"),
    # Memory for a few bytes.
    "gh-115952: LONG_BINPUT": ("pickle.memo", lambda _: b"Nr\xff\xff\xff\x7f"),
    "gh-115952: a length of 8 EiB": (
        "pickle.truncated",
        lambda _: b"\x8e" + struct.pack("<Q", 1 << 62) + b"x",
    ),
    "a bytearray of 8 GiB": (
        "pickle.arguments",
        lambda a: a.call("builtins:bytearray", a.number(1 << 33)),
    ),
    "list of a range": (
        "pickle.global",
        lambda a: a.call("builtins:list", a.call("builtins:range", a.number(10**12))),
    ),
    "a hash bomb": ("pickle.key-cost", lambda a: a.dict(_doubled(), b"N")),
    # Names that skip the list once they were cached.
    "modelaudit 493: EXT1": ("pickle.extension", lambda _: b"\x82\xf0)R"),
    "nltk 3757: EXT2": ("pickle.extension", lambda _: b"\x83\xf0\0)R"),
    "nltk 3757: EXT4": ("pickle.extension", lambda _: b"\x84\xf0\0\0\0)R"),
    # What is filled or set is not what was made here.
    "CVE-2026-24747: SETITEM on a listed object": (
        "pickle.global",
        lambda a: a.call("collections:deque") + b"K\0K\1s",
    ),
    "CVE-2026-24747: SETITEM on a class": (
        "pickle.grow-target",
        lambda a: a.name("collections:deque") + b"K\0K\1s",
    ),
    # Memory safety behind a list of names.
    "an array of objects over bytes": (
        "pickle.global",
        lambda a: a.call("numpy:ndarray", a.tuple(b"K\1"), a.text("O"), a.raw(b"A" * 8)),
    ),
    "an array of objects out of a buffer": (
        "value.dtype",
        lambda a: a.call(
            "numpy._core.numeric:_frombuffer",
            a.raw(b"A" * 8),
            _objects(a),
            a.tuple(b"K\1"),
            a.text("C"),
        ),
    ),
    "an object as a scalar": (
        "value.dtype",
        lambda a: a.call("numpy._core.multiarray:scalar", _objects(a), a.raw(b"A" * 8)),
    ),
    "an array of objects by its state": (
        "pickle.arguments",
        lambda a: a.build(
            a.call(
                "numpy._core.multiarray:_reconstruct",
                a.name("numpy:ndarray"),
                a.tuple(b"K\0"),
                a.raw(b"b"),
            ),
            a.tuple(
                b"K\1",
                a.tuple(b"K\1"),
                _objects(a),
                b"\x89",
                a.raw(b"A" * 8),
            ),
        ),
    ),
}

#: Modules and functions that blocklists had left out, by advisory.
NOT_BLOCKED = (
    "pip:main",  # CVE-2025-1716
    "pip._internal:main",
    "idlelib.run:Executive",
    "lib2to3.pgen2.grammar:Grammar.loads",
    "cProfile:runctx",
    "profile:run",
    "trace:Trace.run",
    "doctest:debug_script",
    "ensurepip:_run_pip",
    "code:InteractiveInterpreter",
    "timeit:timeit",
    "torch.utils.bottleneck.__main__:run_cprofile",
    "_operator:attrgetter",
    "_operator:methodcaller",
    "distutils.file_util:write_file",
    "_io:FileIO",
    "io:open",
    "importlib:import_module",
    "marshal:loads",
    "types:CodeType",
    "pty:spawn",
    "runpy:run_path",
    "ctypes:CDLL",
    "_ctypes:CFuncPtr",
    "pydoc:pipepager",
    "multiprocessing.util:spawnv_passfds",
    "uuid:_get_command_stdout",
    "_aix_support:_read_cmd_output",
    "_osx_support:_read_output",
    "platform:_syscmd_ver",
    "linecache:getlines",
    "difflib:context_diff",
    "gc:get_objects",
    "_posixsubprocess:fork_exec",
    "site:execsitecustomize",
    "atexit:register",
    "_xxsubinterpreters:run_string",
    "_interpreters:run_string",
    "builtins:breakpoint",
    "numpy.lib:npyio",
    "numpy.testing._private.utils:runstring",
    "pandas.io.pickle:read_pickle",
    "pandas.core.computation.eval:eval",
    "scipy.datasets:face",
    "joblib.numpy_pickle:load",
    "dask.array.io:from_npy_stack",
    "subprocess:Popen",
    "posix:system",
    "nt:system",
    "functools:partial.__call__",
)


def _objects(asm: Any) -> bytes:
    """The dtype of objects, with its own state."""
    state = asm.tuple(b"K\3", asm.text("|"), b"NNN", _MINUS, _MINUS, b"K?")
    return asm.build(asm.call("numpy:dtype", asm.text("O8"), b"\x89", b"\x88"), state)


def _doubled() -> bytes:
    """A tuple of two of a tuple of two …, down to 16,384 numbers; 60 levels would take a year."""
    return b"K\1" + b"2\x86" * 14


@pytest.mark.parametrize(("rule", "recipe"), VECTORS.values(), ids=VECTORS.keys())
def test_refused_by_its_rule(asm, trap, rule, recipe):
    data = asm.pickle(recipe(asm))
    modules, peak = set(sys.modules), _peak()
    with pytest.raises(SafeserError) as caught:
        loads(data, profile=DATA_PROFILES)
    assert caught.value.rule == rule
    assert set(sys.modules) == modules
    assert _peak() - peak < 64 << 20


@pytest.mark.parametrize("name", NOT_BLOCKED)
def test_no_name_is_missing_from_a_list_of_what_is_allowed(asm, trap, name):
    modules = set(sys.modules)
    for use in (asm.call(name, asm.text("true")), asm.name(name), asm.new(name)):
        with pytest.raises(SafeserError) as caught:
            loads(asm.pickle(use), profile=DATA_PROFILES)
        assert caught.value.rule in ("pickle.global", "pickle.name")
        assert inspect(asm.pickle(use), profile=DATA_PROFILES).permitted is False
    assert set(sys.modules) == modules


def test_a_cached_extension_is_no_way_past_the_list(asm, trap):
    # Once a stock unpickler has met the code, CPython looks nothing up any more (nltk 3757).
    copyreg.add_extension("safeser_trap", "fire", 0xF0)
    copyreg._extension_cache[0xF0] = trap.fire
    try:
        with pytest.raises(SafeserError) as caught:
            loads(asm.pickle(b"\x82\xf0)R"), profile=DATA_PROFILES)
    finally:
        copyreg.remove_extension("safeser_trap", "fire", 0xF0)
    assert caught.value.rule == "pickle.extension"


def test_a_refusal_disturbs_nothing_else(asm, trap):
    # A refused message ended the serving loop of others (sglang): here the next load is as ever.
    for _, recipe in VECTORS.values():
        with pytest.raises(SafeserError):
            loads(asm.pickle(recipe(asm)), profile=DATA_PROFILES)
        assert loads(asm.pickle(asm.list(b"K\1"))) == [1]


def _peak() -> int:
    """Return the most memory that this process has held, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
