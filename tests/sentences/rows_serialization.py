"""Sentences about values, pickles and the trace of them."""

from __future__ import annotations

import io
from collections import OrderedDict
from types import SimpleNamespace
from unittest import mock

import numpy as np

import safeser
from safeser.families.arrow.layout import checking
from safeser.families.stdlib.containers import _check_defaultdict
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.inspection.compressed import inflate
from safeser.inspection.source import Source
from safeser.pickles.building.build import Builder
from safeser.pickles.shims.numpy.arrays import _object_array
from safeser.pickles.shims.pandas import arrays
from safeser.pickles.shims.pandas.arrays import _arrow_array
from safeser.pickles.shims.pandas.times import zone
from safeser.pickles.shims.stdlib import records
from safeser.types import pandas, stdlib
from tests.sentences.sentence import Sentence

SITE = SimpleNamespace(charge_bytes=bool)


JUDGED_NONE = SimpleNamespace(references={}, profile=SimpleNamespace(get=lambda name: None))


ENTRY = SimpleNamespace(name="a:b", role="constant", referable=True, hashable=False)
LIST = SimpleNamespace(found=[], check=lambda: None)
JUDGED_LIST = SimpleNamespace(
    references={}, profile=SimpleNamespace(get=lambda name: ENTRY, live=lambda entry: LIST)
)


def an_array_of_no_strings() -> None:
    fields = {"_pa_array": SimpleNamespace(type="int8"), "_dtype": None}
    with (
        mock.patch.object(arrays, "draft_of", return_value="ArrowStringArray"),
        mock.patch.object(arrays, "fields_of", return_value=fields),
    ):
        _arrow_array(SITE, None, None)


def node(kind: str, *fields: str) -> mock.Mock:
    made = mock.Mock(type=kind, where="")
    made.expect.return_value = fields
    made.refuse = lambda *given: Node.refuse(made, *given)
    return made


def invalid_to_arrow() -> None:
    with checking(node("pyarrow:Table")):
        raise ValueError("a peer's words")


def other_line_ends() -> None:
    with mock.patch.object(records, "_stream_state", return_value=("a\nb", "\r", 0, None)):
        records._string_io(SITE, None, None)


ROWS = [
    Sentence(
        "families.on-error",
        lambda: safeser.serialize(1, on_error="x"),
        "on_error is 'message' or 'raise'",
    ),
    Sentence(
        "families.policy",
        lambda: safeser.serialize(1, policy="default"),
        "policy is a safeser.Policy, not a str",
    ),
    Sentence(
        "families.limits",
        lambda: safeser.serialize(
            1,
            limits=Limits(),
            policy=safeser.Policy.load("strict"),
            context=safeser.Context("client", "scheduler"),
        ),
        "a policy has limits of its own",
    ),
    Sentence(
        "inspect.damaged",
        lambda: inflate(Source(io.BytesIO(b"no gzip"), 7), "gzip"),
        "the file does not decompress by gzip",
    ),
    Sentence("pickle.time-zone", lambda: zone("UTC"), "a time zone is not of an accepted type"),
    Sentence(
        "pickle.reference",
        lambda: Builder.reference(JUDGED_NONE, SimpleNamespace(name="a:b")),
        "a name is used that was not judged",
    ),
    Sentence(
        "pickle.constant",
        lambda: Builder.reference(JUDGED_LIST, SimpleNamespace(name="a:b")),
        "a:b is not a plain constant",
    ),
    Sentence("pickle.arrow", an_array_of_no_strings, "an array of strings holds something else"),
    Sentence(
        "families.factory",
        lambda: _check_defaultdict(node("defaultdict", "eval"), Limits()),
        "the header of defaultdict is refused: its default factory is not listed",
    ),
    Sentence(
        "families.arrow",
        invalid_to_arrow,
        "the header of pyarrow:Table is refused: Arrow finds it invalid (ValueError)",
    ),
    Sentence(
        "pickle.values", other_line_ends, "a stream holds line ends that it would not have written"
    ),
    Sentence(
        "pickle.object-dtype",
        lambda: _object_array(SITE, (1,), np.dtype([("a", object)]), [], "C"),
        "objects inside a structured dtype are not accepted",
    ),
    Sentence(
        "value.address",
        lambda: stdlib.address_of(str, "x" * 1_000),
        "an address, or the name of its scope, is too long",
    ),
    Sentence(
        "value.chain-map",
        lambda: stdlib.chain_of([[]]),
        "a ChainMap holds a mapping of an unlisted class",
    ),
    Sentence(
        "value.deque",
        lambda: stdlib.deque_of([1, 2], 1),
        "the maxlen of a deque is out of range, or drops some of it",
    ),
    Sentence(
        "value.ordered-dict",
        lambda: stdlib.ordered_of(OrderedDict(), {"x": 1}),
        "an OrderedDict has attributes of its own",
    ),
    Sentence(
        "value.column",
        lambda: pandas.check_kept(np.dtype("S3")),
        "a column is not of a type that pandas keeps",
    ),
    Sentence("value.number", lambda: records._within(2, 1), "an integer is out of range"),
    Sentence("value.text", lambda: records._short("x" * 1_000), "a text is too long"),
    Sentence(
        "value.pattern",
        lambda: records._pattern(SITE, "", "x" * 10_000_000, 0),
        "a regular expression is too long or has unknown flags",
    ),
]
