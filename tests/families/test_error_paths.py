"""Failures name files of libraries from the library on; withheld ones name no folder at all."""

from __future__ import annotations

import json
import os
import string
import sys
import sysconfig
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.families.errors.paths import relative_frames, withheld, withheld_text
from safeser.families.errors.wire import decode, encode, from_data, to_data

SITE = sysconfig.get_paths()["purelib"]


def raised(function, *args):
    try:
        function(*args)
    except Exception as error:
        return error
    raise AssertionError


def parts(data):
    """Yield every text in a failure."""
    found = [data]
    for link in found:
        yield from (link.message, link.traceback, *link.notes, *link.state)
        yield from map(str, (link.args, link.fields))
        found += link.linked()


# --- library frames ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (f"{SITE}/distributed/core.py", "distributed/core.py"),
        (f"{sysconfig.get_paths()['stdlib']}/json/decoder.py", "json/decoder.py"),
        (os.path.realpath("safeser/errors.py"), "safeser/errors.py"),
        ("/home/alice/models.py", "/home/alice/models.py"),
        ("/tmp/ipykernel_1/2.py", "/tmp/ipykernel_1/2.py"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
        (f"{sys.prefix}x/lib/core.py", f"{sys.prefix}x/lib/core.py"),
    ],
)
@pytest.mark.parametrize("before", ["  ", "  | ", "    |   "])
def test_library_files_are_named_from_the_library_on(file, told, before):
    text = f'Traceback:\n{before}File "{file}", line 3, in f\n{before}  raise ValueError\n'
    assert relative_frames(text) == text.replace(file, told)


def test_a_failure_that_is_data_names_libraries_so():
    error = raised(json.loads, "{")
    told = to_data(error).traceback
    assert 'File "json/decoder.py"' in told
    assert SITE not in told
    assert f'File "{__file__}"' in told  # the code of whoever called it


# --- failures that name no folder ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[Errno 2] No such file: '/srv/dask/x.yaml'", "[Errno 2] No such file: 'x.yaml'"),
        ("'/a/b' -> '/c/d'", "'b' -> 'd'"), ('"/a/it\'s here/c"', '"c"'),
        (r"'/a/it\'s \"here\"/c'", "'c'"),
        ("cannot open /home/my user/x and then /tmp/y", "cannot open y"),
        ("cannot open /home/my user/x", "cannot open x"),
        ("path=/etc/dask/dask.yaml, line 3", "path=dask.yaml, line 3"),
        ("(/etc/passwd)", "(passwd)"), ("file:///etc/dask/x", "file://x"),
        ("file://localhost/etc/x", "file:/x"), ("'/a/b/'", "'b'"), ("/", "/"),
        (r"C:\Users\alice\x.py and C:/y", "y"), (r"'C:\\Users\\alice\\x.py'", "'x.py'"),
        (r"\\server\share\x", "x"), ("tcp://127.0.0.1:8786 and safeser://[::1]:5 failed", None),
        ("see https://distributed.dask.org/en/stable/killed.html.", None),
        ("division by zero / and/or, 5 MiB/s, text/html, a // b, a / b", None),
        ("relative/file.py, ./x/y and ../z", None), ("don't open 'x'", None), ("", None),
        ("two\n/a/b\nlines of /c/d", "two\nb\nlines of d"),
    ],
)  # fmt: skip
def test_what_looks_like_an_absolute_path_is_cut(text, told):
    assert withheld_text(text) == (text if told is None else told)


NAMES = st.text(string.ascii_letters + string.digits + " .-_'\"\\é", min_size=1, max_size=8)
FOLDERS = st.lists(NAMES.map(lambda name: f"folder{name}end"), min_size=1, max_size=4)


@given(FOLDERS, st.sampled_from(["{!r}", "{}", "cannot open {!r}: denied", "open {}: no", "={}"]))
def test_no_folder_of_any_path_is_left(folders, form):
    path = "/" + "/".join([*folders, "x.txt"])
    told = withheld_text(form.format(path))
    assert "folder" not in told
    assert "x.txt" in told
    for error in (OSError(2, "No such file", path), ValueError(form.format(path)), KeyError(path)):
        data = withheld(to_data(error))
        assert not any("folder" in part for part in parts(data))
        assert type(from_data(data)) is type(error)


def test_it_takes_no_time_on_hostile_text():
    texts = ["'/x " * 2_500, "\\" * 10_000, "'/" + "\\" * 9_000, "a." * 5_000, "/" * 10_000]
    texts += ['"/x' * 3_000, "\n" * 10_000, " " * 9_000 + 'File "', "a+" * 5_000, "://" * 3_000]
    before = time.process_time()
    for text in texts:
        withheld_text(text * 10)
    assert time.process_time() - before < 5


def test_a_failure_keeps_its_class_and_loses_its_folders(tmp_path):
    error = raised(open, tmp_path / "gone.txt")
    error.add_note(f"while reading {tmp_path}/gone.txt")
    error.__cause__ = raised(os.rename, tmp_path / "a", tmp_path / "b")
    error.__cause__.__context__ = raised(np.load, tmp_path / "c.npy")
    data = withheld(to_data(error))
    assert not any(str(tmp_path) in part for part in parts(data))
    assert not any(SITE in part for part in parts(data))
    made = from_data(decode(encode(data)))
    assert type(made) is FileNotFoundError
    assert (made.errno, made.filename) == (2, "gone.txt")
    assert str(made) == "[Errno 2] No such file or directory: 'gone.txt'"
    assert (made.__cause__.filename, made.__cause__.filename2) == ("a", "b")
    assert f'File "{os.path.basename(__file__)}"' in data.traceback


def test_no_other_part_names_one():
    syntax = raised(compile, "x = (", "/srv/secret/x.py", "exec")
    missing = ImportError("no x", name="x", path="/srv/secret/x.py")
    coded = raised(b"\xff".decode)
    group = ExceptionGroup("in /srv/secret/g", [syntax, missing, OSError(1, "x", b"/srv/secret/y")])
    for error in (syntax, missing, coded, group):
        data = withheld(to_data(error))
        assert not any("secret" in part for part in parts(data))
        assert type(from_data(data)) is type(error)


def test_what_does_not_say_what_its_class_says_is_cut_as_text():
    class Odd(ValueError):
        def __str__(self):
            return "odd /srv/secret/x"

    data = withheld(to_data(Odd("/srv/secret/y", 5)))
    assert (data.message, data.args) == ("odd x", None) or data.args == ("y", 5)
    assert not any("secret" in part for part in parts(data))
    unreadable = withheld(to_data(UnicodeDecodeError("utf-8", b"\xff/a/secret/b", 0, 1, "bad")))
    assert not any("secret" in part for part in parts(unreadable))


def test_shared_causes_stay_shared():
    cause = OSError(2, "x", "/srv/secret/y")
    group = ExceptionGroup("g", [ValueError("a"), ValueError("b")])
    for member in group.exceptions:
        member.__cause__ = cause
    data = withheld(to_data(group))
    assert data.members[0].cause is data.members[1].cause
