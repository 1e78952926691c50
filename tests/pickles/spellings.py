"""The ways in which programs unpickle, by the row of docs/how-to/guard.md; run by test_guard.

``python spellings.py before|after ROW...`` prints what becomes of a hostile and of a listed pickle,
where the program takes its unpickler before the process is guarded, or after.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import pickle
import sys
import tempfile
from pathlib import Path

from safeser import pickles
from safeser.errors import ConfigError, SafeserError

# Both of protocol 3, which names globals in place.
LISTED = b"\x80\x03cdatetime\ndate\nC\x04\x07\xea\x0b\x1d\x85R."
HOSTILE = b"\x80\x03cposix\nmkdir\nX\x03\x00\x00\x00ran\x85R."


def module(name):
    return importlib.import_module(name)


def program(imports, load):
    """Return *load* as a program would that begins with *imports*: a module of its own."""
    made = type(sys)("program")
    exec(imports, vars(made))
    sys.modules[f"program {imports}"] = made
    return lambda data: eval(load, vars(made), {"data": data, "BytesIO": io.BytesIO})


def held():
    table = [pickle.loads]
    return lambda data: table[0](data)


def c_or_python(loads, unpickler):
    def load(data):
        first = unpickler(io.BytesIO(data)).load()
        assert loads(data) == first
        return first

    return load


def derived(base):
    class Mine(base):
        def find_class(self, module, name):  # asks nobody: the worst that programs have
            return getattr(importlib.import_module(module), name)

    return lambda data: Mine(io.BytesIO(data)).load()


def own_opcodes():
    class Mine(pickle._Unpickler):
        dispatch = pickle._Unpickler.dispatch.copy()

    return lambda data: Mine(io.BytesIO(data)).load()


def forking():
    forking = module("multiprocessing.reduction").ForkingPickler
    return lambda data: forking.loads(data)


def connection():
    pipe = module("multiprocessing").Pipe()

    def load(data):
        pipe[0].send_bytes(data)
        return pipe[1].recv()

    return load


def shelf():
    shelve = module("shelve")
    return lambda data: shelve.Shelf({b"key": data})["key"]


def array_file():
    numpy = module("numpy")
    head = io.BytesIO()
    numpy.lib.format.write_array_header_1_0(
        head, {"descr": "|O", "fortran_order": False, "shape": ()}
    )
    return lambda data: numpy.load(io.BytesIO(head.getvalue() + data), allow_pickle=True)


def frame_file():
    pandas = module("pandas")

    def load(data):
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            return pandas.read_pickle(file.name)

    return load


def model_file():
    joblib = module("joblib")
    return lambda data: joblib.load(io.BytesIO(data))


def torch_file():
    def load(data, pickle_module=pickle):
        class UnpicklerWrapper(pickle_module.Unpickler):
            def find_class(self, mod_name, name):
                if type(name) is str and "Storage" in name:
                    return name
                return super().find_class({}.get(mod_name, mod_name), name)

        unpickler = UnpicklerWrapper(io.BytesIO(data))
        unpickler.persistent_load = lambda saved_id: saved_id
        return unpickler.load()

    return load


def extensions():
    copyreg = module("copyreg")
    copyreg.add_extension("datetime", "date", 241)
    copyreg.add_extension("posix", "mkdir", 242)
    # Loaded once in the process, a code's object is found without a lookup; so is a hostile one.
    copyreg._extension_cache.update({241: module("datetime").date, 242: os.mkdir})
    load_held = held()
    codes = ((b"cdatetime\ndate\n", b"\x82\xf1"), (b"cposix\nmkdir\n", b"\x82\xf2"))

    def load(data):
        for name, code in codes:
            data = data.replace(name, code)
        return load_held(data)

    return load


def second():
    """Return pickle as it is when a program imports it anew."""
    kept = {name: sys.modules.pop(name) for name in ("pickle", "_pickle")}
    made = module("pickle")
    sys.modules.update(kept)
    return made


def again():
    return c_or_python(second().loads, second()._Unpickler)


SPELLINGS = {
    "`import pickle`, `pickle.loads`": lambda: program("import pickle", "pickle.loads(data)"),
    "`pickle.load` of a file": lambda: program("import pickle", "pickle.load(BytesIO(data))"),
    "`from pickle import loads`": lambda: program("from pickle import loads", "loads(data)"),
    "`loads` in a list, a default or a class": held,
    "`import pickle as cPickle`": lambda: program(
        "import pickle as cPickle", "cPickle.loads(data)"
    ),
    "`_pickle.loads`, `_pickle.Unpickler`": lambda: program(
        "import _pickle", "_pickle.loads(data) and _pickle.Unpickler(BytesIO(data)).load()"
    ),
    "`pickle._loads`, `pickle._Unpickler`": lambda: c_or_python(pickle._loads, pickle._Unpickler),
    "`pickle.Unpickler(file).load()`": lambda: program(
        "from pickle import Unpickler", "Unpickler(BytesIO(data)).load()"
    ),
    "a subclass of `pickle.Unpickler` with `find_class`": lambda: derived(pickle.Unpickler),
    "a subclass of `pickle._Unpickler` with `find_class`": lambda: derived(pickle._Unpickler),
    "a subclass with opcodes of its own": own_opcodes,
    "`ForkingPickler.loads` of multiprocessing": forking,
    "`Connection.recv` of multiprocessing": connection,
    "`cloudpickle.loads`": lambda: program("from cloudpickle import loads", "loads(data)"),
    "`shelve`": shelf,
    "`numpy.load(allow_pickle=True)`": array_file,
    "`pandas.read_pickle`": frame_file,
    "`joblib.load`": model_file,
    "`torch.load(weights_only=False)`, as its source is written": torch_file,
    "extension codes of `copyreg`": extensions,
    "`pickle` imported a second time": again,
    "a subclass of a second `pickle._Unpickler` with `find_class`": lambda: derived(
        second()._Unpickler
    ),
}


def outcome(load):
    """Return the word of the page for *load*."""
    built = {}
    for name, data in (("listed", LISTED), ("hostile", HOSTILE)):
        try:
            load(data)
            built[name] = True
        except SafeserError:
            built[name] = False
    if built["hostile"]:
        Path("ran").rmdir()
        return "not caught"
    assert not Path("ran").exists()
    return "judged" if built["listed"] else "refused"


def main(when, rows):
    if when == "before":
        taken = {row: SPELLINGS[row]() for row in rows}
    else:  # what measures this process imports it before the program does
        for name in [name for name in sys.modules if name.partition(".")[0] == "multiprocessing"]:
            del sys.modules[name]
    try:
        pickles.guard(profile="data")
    except ConfigError as error:
        return dict.fromkeys(rows, "no start" if error.rule == "pickle.guarded" else str(error))
    if when == "after":
        taken = {row: SPELLINGS[row]() for row in rows}
    return {row: outcome(load) for row, load in taken.items()}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2:])))
