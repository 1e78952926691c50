"""PyTorch's files: tensors are shown and judged, and whatever is more than tensors is refused."""

from __future__ import annotations

import pickle

import pytest

from tests.inspection.forging import (
    PLAIN,
    Record,
    archive,
    legacy_file,
    looked_at,
    number,
    numbers,
    state_dict,
    storage,
    tensor,
    text,
    torch_records,
)

SYSTEM = b"cposix\nsystem\n" + text("true") + b"\x85R0"
FLOATS = storage("torch:FloatStorage", "0", 6)


def test_a_state_dict():
    report = looked_at(archive(torch_records()))
    assert (report.kind, report.verdict.code) == ("torch", 0)
    assert {use.name for use in report.globals} == {
        "collections:OrderedDict",
        "torch._utils:_rebuild_tensor_v2",
        "torch:FloatStorage",
    }
    assert [part.what for part in report.parts[2:3]] == ["elements of tensors"]


def test_code_in_it_is_refused():
    report = looked_at(archive(torch_records(state_dict(more=SYSTEM), _none=b"")))
    assert report.verdict.code == 1
    assert "posix:system is called" in report.reason


@pytest.mark.parametrize("name", [
    "torch.storage:_load_from_bytes",  # reads a pickle again, by a plain unpickler
    "torch:load", "torch._utils:_rebuild_wrapper_subclass", "torch.serialization:load",
    "torch.nn.modules.linear:Linear",
])  # fmt: skip
def test_what_is_more_than_a_tensor(name):
    called = f"c{name}\n)R0".replace(":", "\n").encode()
    assert looked_at(archive(torch_records(state_dict(more=called)))).rule == "pickle.global"


@pytest.mark.parametrize("made", [
    tensor(FLOATS, begin=1), tensor(FLOATS, shape=(3, 3)), tensor(FLOATS, strides=(9, 1)),
    tensor(FLOATS, shape=(2,)), tensor(FLOATS, shape=(-1, 3)), tensor(FLOATS, begin=-1),
    tensor(b"N"), tensor(storage("torch:FloatStorage", "0", 7)),
    tensor(storage("torch:DoubleStorage", "0", 6)),
    tensor(storage("torch:FloatStorage", "../0", 6)),
    tensor(storage("torch:FloatStorage", "0", -1)), tensor(storage("builtins:list", "0", 6)),
    tensor(FLOATS) + text("other") + tensor(storage("torch:IntStorage", "0", 6)),
    tensor(FLOATS) + text("no storage") + text("id") + b"Q",
    tensor(FLOATS) + text("parts") + b"(" + text("module") + b"N" * 4 + b"tQ",
    tensor(FLOATS) + text("parts") + b"(" + text("storage") + b"ctorch\nFloatStorage\nNNNtQ",
    tensor(FLOATS) + text("few") + b"ctorch._utils\n_rebuild_tensor_v2\n)R",
    tensor(FLOATS) + text("shape") + tensor(FLOATS).replace(numbers(2, 3), b"N"),
], ids=range(18))  # fmt: skip
def test_tensors_and_storages_that_do_not_fit(made):
    # CVE-2026-24747: a storage whose record says another size than its tensors.
    assert looked_at(archive(torch_records(state_dict(made)))).verdict.code == 1


def test_tensors_that_fit():
    made = [
        tensor(FLOATS, shape=(), strides=()),
        tensor(FLOATS, begin=6, shape=(0, 9), strides=(99, 1)),
        tensor(FLOATS, shape=(2, 3)).replace(
            numbers(2, 3), b"ctorch\nSize\n" + numbers(2, 3) + b"\x85R"
        ),
    ]
    assert looked_at(archive(torch_records(state_dict(*made)))).verdict.code == 0
    bare = (
        b"ctorch._utils\n_rebuild_tensor\n(" + FLOATS + number(0) + numbers(6) + numbers(1) + b"tR"
    )
    assert looked_at(archive(torch_records(state_dict(bare)))).verdict.code == 0


@pytest.mark.parametrize(("dtype", "code"), [("uint16", 0), ("uint64", 1), ("layout", 1)])
def test_tensors_that_name_their_dtype(dtype, code):
    made = storage("torch.storage:UntypedStorage", "0", 24)
    hooks = b"\x89ccollections\nOrderedDict\n)R" + f"ctorch\n{dtype}\n".encode()
    rest = number(0) + numbers(12) + numbers(1) + hooks
    pickled = state_dict(b"ctorch._utils\n_rebuild_tensor_v3\n(" + made + rest + b"tR")
    assert looked_at(archive(torch_records(pickled))).verdict.code == code


def test_fields_of_a_dict_that_are_not_its_metadata():
    other = PLAIN.replace(text("_metadata"), text("__class__"))
    assert looked_at(archive(torch_records(other))).verdict.code == 1


def test_storages_that_lack_or_that_nothing_names():
    extra = {"_0": bytes(24), "_1": b"x"}
    assert looked_at(archive(torch_records(**extra))).rule == "inspect.torch"
    lacking = [record for record in torch_records() if "data/" not in record.name[:13]]
    assert "lacks a storage" in looked_at(archive(lacking)).reason


@pytest.mark.parametrize("record", [
    Record("archive/code/__torch__.py", b"import os"),
    Record("archive/constants.pkl", b"\x80\x02)."), Record("archive/evil.pkl", b"\x80\x02)."),
    Record("other/data.pkl", b"\x80\x02)."), Record("archive/.format_version", b"\x80\x02N."),
    Record("archive/.storage_alignment", b"6" * 500),
], ids=lambda record: record.name)  # fmt: skip
def test_records_that_are_not_of_the_format(record):
    assert looked_at(archive([*torch_records(), record])).rule == "inspect.torch"


def test_a_second_pickle_behind_the_first():
    made = torch_records(PLAIN + b"\x80\x02cposix\nsystem\n(tR.")
    assert "data after its pickle" in looked_at(archive(made)).reason


def test_nothing_of_it_is_loaded_by_a_profile():
    # The list is for looking: safeser.pickles knows no such profile.
    from safeser import pickles
    from safeser.errors import ConfigError

    with pytest.raises(ConfigError):
        pickles.loads(b"\x80\x02N.", profile="torch")


# -- before 1.6 ----------------------------------------------------------------------------------

LEGACY = state_dict(tensor(storage("torch:FloatStorage", "7", 6, legacy=True)))


def test_a_file_of_before():
    assert looked_at(legacy_file(state_dict(more=SYSTEM), [])).rule == "pickle.global"
    report = looked_at(legacy_file(LEGACY, ["7"], (6, bytes(24))))
    assert (report.kind, report.verdict.code) == ("torch-legacy", 0)
    assert report.parts[-1].name == "storage 7"


@pytest.mark.parametrize(("keys", "counted"), [
    (["8"], [(6, bytes(24))]), (["7", "7"], [(6, bytes(24))] * 2), ([7], [(6, bytes(24))]),
    (["7"], [(5, bytes(24))]), (["7"], [(-1, bytes(24))]), ([], []), (["7"], [(6, bytes(25))]),
])  # fmt: skip
def test_storages_of_before_that_do_not_fit(keys, counted):
    assert looked_at(legacy_file(LEGACY, keys, *counted)).verdict.code == 1


def test_a_file_of_before_that_is_cut_off():
    made = legacy_file(LEGACY, ["7"], (6, bytes(24)))
    pieces = {looked_at(made[:size]).verdict.code for size in range(len(made) - 30, len(made))}
    assert pieces == {2}


@pytest.mark.parametrize(
    ("at", "value"), [(1, 1002), (2, {"little_endian": True}), (2, []), (2, {1: 1}), (4, ("7",))]
)
def test_files_of_another_version(at, value):
    whole = legacy_file(LEGACY, ["7"], (6, bytes(24)))
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}
    written = [0x1950A86A20F9469CFC6C, 1001, system, None, ["7"]]
    forged = whole.replace(pickle.dumps(written[at], 2), pickle.dumps(value, 2))
    assert looked_at(forged).rule == "inspect.torch"
