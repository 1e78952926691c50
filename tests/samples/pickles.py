"""Pickles that reach for code, or break what reads them, by the rule that refuses each.

The one rule: a vector of a published way past a scanner or a restricted unpickler has its name.
Rows about containers, channels or keys have their tests in the packages concerned, and
docs/explanation/verification.md lists which.
"""

from __future__ import annotations

import pickle
import struct

import numpy as np

from tests.samples.opcodes import build, call, line, name, new, raw, value

FIRE, ARMED = "safeser_trap:fire", "safeser_trap:Armed"
_DEEP = b"N" + b"\x85" * 60 + b"q\x000"


def _objects():
    """Return the dtype of objects, with its own state."""
    made = call("numpy:dtype", "O8", False, True)
    return build(made, (3, "|", None, None, None, -1, -1, 63))


def _doubled():
    """Return a tuple of two of a tuple of two ..., down to 16,384 numbers; 60 would take a year."""
    return b"K\1" + b"2\x86" * 14


def spelt(named, part):
    return call("builtins:getattr", name(named), part)


# fmt: off
HOSTILE = {
    "pickle.arguments": {
        "type makes a class": call("builtins:type", "X", (), {}),
        "type of a thing": call("builtins:type", 1),
        "bytes of a size": call("builtins:bytes", 1 << 33),
        "deque of a range": call("collections:deque", call("builtins:range", 0, 10**12), 1),
        "set of a range": call("builtins:set", call("builtins:range", 0, 10**12, 1)),
        "encoder": call("_codecs:encode", "x", "idna"),
        "fraction of an exponent": call("fractions:Fraction", "1e999999999"),
        # Names of functions and methods, which an object carries and whoever loads it looks up.
        "skops CVE-2025-54412: a function of operator by its name": call("operator:methodcaller",
            "tofile", "x"),
        "skops CVE-2025-54413: a method of an object that is built": call("builtins:getattr",
            call("collections:deque"), "__init_subclass__"),
        "a bytearray of 8 GiB": call("builtins:bytearray", 1 << 33),
        "an array of objects by its state": build(call("numpy._core.multiarray:_reconstruct",
            name("numpy:ndarray"), (0,), raw(b"b")), (1, (1,), _objects(), False, raw(b"A" * 8))),
    },
    "pickle.build-target": {
        "build on an unlisted class": build(name(ARMED), {}),
        "build on a container": build(b"]", {}),
        "slot state on a listed class": build(name("collections:Counter"), (None,
            {"__missing__": None})),
        # State for a function or module, that is for the whole process.
        "modelscan 85: BUILD on a function": build(name("numpy:prod"), {"a": name("os:system")}),
    },
    "pickle.extension": {
        # Names that skip the list once they were cached.
        "modelaudit 493: EXT1": b"\x82\xf0)R",
        "nltk 3757: EXT2": b"\x83\xf0\0)R",
        "nltk 3757: EXT4": b"\x84\xf0\0\0\0)R",
    },
    "pickle.frame": {
        # CPython's readers disagree.
        "gh-154848: an opcode crosses the end of a frame": b"\x95" + struct.pack("<Q",
            3) + value("harmless") + b"0" + call(FIRE),
    },
    "pickle.global": {
        "other case": call("Builtins:complex", 1, 1),
        "dotted through a listed module": call("uuid:os.system", "true"),
        "reduce": call(FIRE),
        "reduce by GLOBAL": call(line(FIRE)),
        "reduce inside a list": value([None, call(FIRE)]),
        "reduce in a frozenset": b"(" + call(FIRE) + b"\x91",
        "newobj": new(ARMED),
        "newobj_ex": name(ARMED) + b")}\x92",
        "mere reference": name(FIRE),
        "reference thrown away": name(FIRE) + b"0N",
        "reference through the memo": name(FIRE) + b"q\x000h\x00",
        "reference as argument": call("collections:deque", [name(FIRE)]),
        "reference as factory": call("collections:defaultdict", name(FIRE)),
        "build on a listed value": build(call("builtins:complex", 1, 1), {}),
        "the result of a call is called": call("builtins:bytearray") + b")R",
        "dotted": call("builtins:bytearray.fromhex", "00"),
        "dotted dunder": name("collections:deque.__init__.__globals__"),
        "look-alike letters": call("builtins:c\u043emplex", 1, 1),
        "compatibility letters": call("builtins:\uff43omplex", 1, 1),
        "submodule of a listed one": name("collections.abc:Iterator"),
        "append to a listed object": call("collections:OrderedDict") + b"Na",
        "tblib": call("tblib.pickling_support:unpickle_exception", name(FIRE), (), None, None),
        "partial": new("functools:partial", name(FIRE)),
        "copyreg reconstructor": call("copyreg:_reconstructor", name(ARMED),
            name("builtins:object"), None),
        "python 2 names": call(line("__builtin__:apply"), name(FIRE)),
        "exit": call("builtins:SystemExit"),
        "interrupt": call("builtins:KeyboardInterrupt"),
        "late payload": b"N0" * 5000 + call(FIRE),
        "picklescan 23: the last string is not the name": value("os") + b"q\0" + value(
            "math") + b"q\1" + value("pi") + b'q\x02000h\x00' + value("system") + b"\x93",
        "modelscan 85: a dotted way to what was set": name("numpy:prod.a"),
        "modelscan 89: builtins by way of a listed module": name("numpy:__builtins__.get"),
        # A deserializer within.
        "picklescan 25: a pickle within a pickle": call("pickle:loads", raw(b"N.")),
        "sglang: a loader of one's own": call("sglang.srt.utils.patch_torch:dynamic_import",
            "os.system"),
        "sglang: a pickle in a wrapper": call("sglang.srt.managers.io_struct:PickleWrapper",
            raw(b"N.")),
        "TensorRT-LLM: torch's storage loader": call("torch.storage:_load_from_bytes", raw(b"N.")),
        # Names that are matched by their beginning, their end, or a part.
        "ragflow 1240: a module below a listed one": call("numpy.f2py.diagnose:run_command",
            "true"),
        "CVE-2025-10157: a submodule": call("asyncio.unix_events:_UnixSubprocessTransport"),
        "GHSA-5j3x-jp52-966f: a dotted name in a listed module": call("pathlib:os.system", "true"),
        "GHSA-q5qq: a module that re-exports": name("uuid:sys.modules"),
        "Paddle 79764: a listed module's own import": call("numpy.core.numeric:builtins.eval", "1"),
        "Airflow: a name that begins as a listed one": name("collections:OrderedDict_Malicious"),
        "agent-framework 5923: types by prefix": name("types:FunctionType"),
        # Reflection that a list let through.
        "sglang CVE-2025-10164: getattr": call("builtins:getattr", call("builtins:__import__",
            "os"), None),
        "sglang CVE-2026-15969: attrgetter on a module's import": call(call("operator:attrgetter",
            "modules"), name("pickletools:sys")),
        "GHSA-vvpj-8cmc-gx39: resolve_name": call("pkgutil:resolve_name", "os:system"),
        "skops 506: a function in the place of a loss": build(new(
            "sklearn.linear_model._stochastic_gradient:SGDClassifier"), {"loss_function_": name(
            FIRE)}),
        # What is called, but left out of what is judged.
        "GHSA-mxhj-88fx-4pcv: the result is thrown away": call(FIRE) + b"0N",
        "GHSA-mxhj-88fx-4pcv: by OBJ": b"(" + name(FIRE) + b"o0N",
        "GHSA-mxhj-88fx-4pcv: by INST": b"(isafeser_trap\nfire\n0N",
        "GHSA-h4rm: builtins": call("builtins:exec", "1"),
        "list of a range": call("builtins:list", call("builtins:range", 10**12)),
        # What is filled or set is not what was made here.
        "CVE-2026-24747: SETITEM on a listed object": call("collections:deque") + b"K\0K\1s",
        # Memory safety behind a list of names.
        "an array of objects over bytes": call("numpy:ndarray", (1,), "O", raw(b"A" * 8)),
    },
    "pickle.grow-target": {
        "setitem on a module's dict": name("sys:modules") + value("x") + b"Ns",
        "append to a module's list": name("sys:meta_path") + b"Na",
        "additems to a listed object": call("builtins:set") + b"(N\x90",
        "CVE-2026-24747: SETITEM on a class": name("collections:deque") + b"K\0K\1s",
    },
    "pickle.key-cost": {
        "a hash bomb": value({_doubled(): None}),
    },
    "pickle.memo": {
        # A scanner keeps the memo otherwise than the machine does, and sees a harmless name.
        "picklescan 14: a memo slot is written twice": value("os") + b"q\0" + value(
            "math") + b"q\0" + value("pi") + b"\x93",
        "picklescan 22: MEMOIZE counts otherwise than BINPUT": value("os") + b"q\1" + value(
            "math") + b"\x94" + value("system") + b"\x93",
        "picklescan 52: a memo key that was never written": b"h\7",
        "gh-144410: a PUT index beyond the memo": b"Np4294967297\n",
        "gh-144410: a PUT index with a sign": b"Np+0\n",
        # Memory for a few bytes.
        "gh-115952: LONG_BINPUT": b"Nr\xff\xff\xff\x7f",
    },
    "pickle.name": {
        "trailing NUL": call("builtins\0:complex", 1, 1),
        "name by a call": value("os") + call("builtins:bytes") + b"\x93",
        "name by a buffer": b"\x97" + value("system") + b"\x93",
        "picklescan 52: a memo entry that is no string": b"K\1q\0" + value("x") + b"h\0\x93",
    },
    "pickle.opcode": {
        # What a reader does when it can't read on.
        "GHSA-9gvj-pp9x-gcfr: a broken end after the call": call(FIRE) + b"\xff",
    },
    "pickle.state": {
        "state for an uuid's class": build(new("uuid:UUID"), {"int": 1, "__class__": None}),
    },
    "pickle.truncated": {
        "modelscan 348: a cut string after the call": call(FIRE) + b"X\xff\xff\xff\x7f",
        "gh-135321: BINSTRING of a negative length": b"T\xff\xff\xff\xff" + b"N",
        "gh-115952: a length of 8 EiB": b"\x8e" + struct.pack("<Q", 1 << 62) + b"x",
    },
    "value.decimal": {
        "large exponent": call("decimal:Decimal", "1E999999999"),
    },
    "value.dtype": {
        "an array of objects out of a buffer": call("numpy._core.numeric:_frombuffer",
            raw(b"A" * 8), _objects(), (1,), "C"),
        "an object as a scalar": call("numpy._core.multiarray:scalar", _objects(), raw(b"A" * 8)),
    },
}

#: Whole pickles, or what is none.
STREAMS = {
    "pickle.arguments": [
        b"cbuiltins\nset\n]R.", b"cbuiltins\nset\nNR.", b"cbuiltins\nset\n)N\x92.",
        b"cbuiltins\ncomplex\nNN\x86R.",
    ],
    "pickle.buffers": [b"\x80\x05\x97.", b"\x80\x05N\x98."],
    "pickle.build-order": [b"cbuiltins\nset\n)R}b(Ne."],
    "pickle.build-target": [b"]Nb.", b"cbuiltins\nset\n}b.", b"cbuiltins\nint\n}b."],
    "pickle.build-twice": [b"cbuiltins\nset\n)R}b}b."],
    "pickle.callee": [b"(K\x01o.", b"N)R.", b"])R."],
    "pickle.extension": [b"\x82\x41.", b"\x83\x41\x00.", b"\x84\x41\x00\x00\x00.", b"\x82\x01."],
    "pickle.frame": [
        b"\x80\x03\x95\x02" + b"\0" * 7 + b"N.", b"\x95\x02" + b"\0" * 7 + b"N.",
        b"\x80\x04\x95" + b"\0" * 8 + b"N.", b"\x80\x04\x95" + b"\xff" * 8 + b"N.",
        b"\x80\x04\x95\x03" + b"\0" * 7 + b"N.",
        b"\x80\x04\x95\x0b" + b"\0" * 7 + b"\x95\x01" + b"\0" * 7 + b"N.",
        b"\x80\x04\x95\xff\0\0\0\0\0\0\0N.",
    ],
    "pickle.global": [
        b"cos\nsystem\n)R.", b"cmy\nPoint\n)\x81.", b"cmy\nfunction\n.",
        pickle.dumps(np.float64(1)), b"cuuid\nUUID\n)R.",
        b"\x80\x04cuuid\nUUID\n)}X\x01\x00\x00\x00aNs\x92.",
        b"cbuiltins\ncomplex\nK\x01K\x02\x86R}b.", b"cbuiltins\ncomplex\nK\x01K\x02\x86RNa.",
        b"cbuiltins\ncomplex\nK\x01K\x02\x86R)R.", b"(ios\nsystem\n.",
    ],
    "pickle.grow-target": [
        b"N(Ne.", b"}(Ne.", b"](NNu.", b"cbuiltins\nset\n(Ne.", b")Na.", b"](N\x90.",
        b"\x80\x04" + b"X\1\0\0\0a(e.", b"\x80\x04" + b"X\1\0\0\0a(u.", b"\x80\x04" + b"N(e.",
        b"\x80\x04" + b"}(e.",
    ],
    "pickle.key-cost": [
        _DEEP + b"}h\x00Ns.", _DEEP + b"\x8f(h\x00\x90.", _DEEP + b"(h\x00\x91.",
        b"N\x85q\x00" + b"\x85" * 60 + b"q\x010}h\x01Ns.",
    ],
    "pickle.max-depth": [b"(" * 300 + b"t" * 300 + b"."],
    "pickle.max-int": [b"\x8b" + struct.pack("<I", 1 << 17) + b"\x01" * (1 << 17) + b"."],
    "pickle.memo": [
        b"g0\n.", b"h\x00.", b"j\x00\x00\x00\x00.", b"Nq\x02.", b"Nq\x00q\x00.",
        b"Nr\x00\x00\x10\x00.", b"Nr\xff\xff\xff\xff.", b"Np01\n.", b"Np-1\n.", b"Np 0\n.",
        b"Nq\x09.",
    ],
    "pickle.name": [
        b"cos\nsys\x00tem\n.", b"cos\r\nsystem\r\n.", b"c\nsystem\n.", b"cos\n\n.",
        b"cos.\nsystem\n.", b"c../os\nsystem\n.", b"cbuiltins\nint.__class__\n.",
        b"\x80\x04cbuiltins\nint..x\n.", b"\x80\x04cbuiltins\nf.<locals>.g\n.",
        b"\x80\x04c" + b"a" * 600 + b"\nb\n.", b"\x80\x04NN\x93.",
        b"\x80\x04C\x02osX\x06\x00\x00\x00system\x93.", b"cos\0\nsystem\n.",
    ],
    "pickle.opcode": [b"\x00.", b"\xffN.", b"\xff."],
    "pickle.persistent-id": [b"P1\n.", b"NQ.", b"Px\n."],
    "pickle.protocol": [b"N\x80\x04.", b"\x80\x06N.", b"\x80\xffN."],
    "pickle.sharing": [
        b"]q\x00" + b"".join(b"0](h%ch%ceq%c" % (i, i, i + 1) for i in range(60)) + b".",
    ],
    "pickle.stack": [
        b"NN.", b"(N.", b".", b"0.", b"1.", b"t.", b"a.", b"2.", b"N\x86.", b"(N\x85\x86.",
        b"}(Nu.", b"q\x00.", b"(o.", b"ios\nsystem\n.", b"Nb.",
    ],
    "pickle.text": [
        b"I0x10\n.", b"I 1\n.", b"I1_0\n.", b"I007\n.", b"I\n.", b"I+1\n.", b"L1l\n.",
        b"Fnan(1)\n.", b"F1_0\n.", b"S'a\n.", b"Sabc\n.", b"S'a' \n.", b"S'\\101'\n.",
        b"S'\xe9'\n.", b"U\x01\xe9.", b"T\x01\x00\x00\x00\xe9.", b"V\\u12\n.",
        b"X\x01\x00\x00\x00\xff.", b"I-0\n.", b"(i\xc3\xa9\nsystem\n.", b"\x80\x04" + b"F5e324\n.",
        b"Inan\n.",
    ],
    "pickle.trailing": [b"N.N", b"N.."],
    "pickle.truncated": [
        b"", b"N", b"Np99999999999\n.", b"L" + b"9" * 5000 + b"L\n.", b"T\xff\xff\xff\xff.",
        b"X\xff\xff\xff\xff.", b"\x8d" + b"\xff" * 8 + b".", b"\x8e" + b"\xff" * 8 + b".",
        b"\x96" + b"\xff" * 8 + b".", b"\x8b\xff\xff\xff\xff.",
        b"\x80\x04c" + b"a" * 2000 + b"\nb\n.", b"X\xff",
    ],
    "pickle.unhashable": [
        b"\x80\x05}" + b"]" + b"Ns.", b"\x80\x05}" + b"}" + b"Ns.", b"\x80\x05}" + b"\x8f" + b"Ns.",
        b"\x80\x05}" + b"]\x85" + b"Ns.", b"\x80\x05}" + b"\x96" + bytes(8) + b"Ns.", b"}]Ns.",
    ],
}

#: Modules and functions that blocklists had left out; pip:main is CVE-2025-1716.
NOT_BLOCKED = (
    "pip:main", "pip._internal:main", "idlelib.run:Executive",
    "lib2to3.pgen2.grammar:Grammar.loads", "cProfile:runctx", "profile:run", "trace:Trace.run",
    "doctest:debug_script", "ensurepip:_run_pip", "code:InteractiveInterpreter", "timeit:timeit",
    "torch.utils.bottleneck.__main__:run_cprofile", "_operator:attrgetter",
    "_operator:methodcaller", "distutils.file_util:write_file", "_io:FileIO", "io:open",
    "importlib:import_module", "marshal:loads", "types:CodeType", "pty:spawn", "runpy:run_path",
    "ctypes:CDLL", "_ctypes:CFuncPtr", "pydoc:pipepager", "multiprocessing.util:spawnv_passfds",
    "uuid:_get_command_stdout", "_aix_support:_read_cmd_output", "_osx_support:_read_output",
    "platform:_syscmd_ver", "linecache:getlines", "difflib:context_diff", "gc:get_objects",
    "_posixsubprocess:fork_exec", "site:execsitecustomize", "atexit:register",
    "_xxsubinterpreters:run_string", "_interpreters:run_string", "builtins:breakpoint",
    "numpy.lib:npyio", "numpy.testing._private.utils:runstring", "pandas.io.pickle:read_pickle",
    "pandas.core.computation.eval:eval", "scipy.datasets:face", "joblib.numpy_pickle:load",
    "dask.array.io:from_npy_stack", "subprocess:Popen", "posix:system", "nt:system",
    "functools:partial.__call__",
)
# fmt: on
