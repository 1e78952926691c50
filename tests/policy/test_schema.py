"""The JSON Schema of policies accepts what loads, and refuses what has another shape."""

from __future__ import annotations

import copy

import jsonschema
import pytest
import yaml
from ruamel.yaml import YAML

from safeser.errors import ConfigError
from safeser.gate.values import FAMILIES
from safeser.policy import Policy, ready_policies
from safeser.policy.ready import locate
from safeser.policy.schema import json_schema
from safeser.policy.source.context import Rule
from safeser.policy.source.model import ExtendsModel, LimitsModel, PolicyModel


@pytest.fixture(scope="module")
def schema():
    made = json_schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


#: Editors read YAML by version 1.2, of which 1_000 is text, or by 1.1.
READERS = [yaml.safe_load, YAML(typ="safe", pure=True).load]


@pytest.mark.parametrize("name", ready_policies())
@pytest.mark.parametrize("read", READERS)
def test_every_ready_policy_is_valid(schema, name, read):
    schema.validate(read(locate(name).read_text()))


BASE = {
    "safeser": 1,
    "name": "base",
    "revision": 1,
    "principals": {"a": {}, "b": {}},
    "contexts": [{"name": "c", "sender": "a", "recipient": ["b"]}],
}


def changed(path, value):
    made = copy.deepcopy(BASE)
    part = made
    for each in path[:-1]:
        part = part[each] if isinstance(part, list) else part.setdefault(each, {})
    part[path[-1]] = value
    return made


C = ("contexts", 0)
WRONG = [
    (("safeser",), 2),
    (("name",), "no spaces"),
    (("revision",), 0),
    (("revision",), "one"),
    (("family",), []),
    (("families",), ["a", "a"]),
    (("principals", "no spaces"), {}),
    (("principals", "a"), {"key": []}),
    (("contexts",), []),
    ((*C, "sender"), []),
    ((*C, "sender"), ["a", "a"]),
    ((*C, "kinds"), ["date"]),
    ((*C, "transport"), "udp"),
    ((*C, "same_host"), "yes"),
    ((*C, "serializers"), []),
    ((*C, "serializers"), ["msgpack", "error"]),
    ((*C, "pickle"), {"profile": ["numpyy"]}),
    ((*C, "pickle"), {"allow": {"m:x": "klass"}}),
    ((*C, "pickle"), {"allow": {"m:x": {"fields": ["y"]}}}),
    ((*C, "dask"), {}),
    ((*C, "operations"), {"grant": ["bassic"]}),
    ((*C, "key_conflicts"), {"definition": "allow"}),
    (("limits", "max_depth"), 7),
    (("limits", "max_bytes"), "2GB"),
    (("limits", "max_array"), (1 << 40) + 1),
    (("limits", "max_what"), 5),
    (("dashboard",), {}),
]


@pytest.mark.parametrize(("path", "value"), WRONG, ids=lambda each: str(each)[:40])
def test_another_shape_is_invalid_and_does_not_load(schema, path, value):
    schema.validate(BASE)
    wrong = changed(path, value)
    assert not schema.is_valid(wrong)
    with pytest.raises(ConfigError):
        Policy.parse(yaml.safe_dump(wrong))


@pytest.mark.parametrize("missing", ["safeser", "name", "revision", "principals", "contexts"])
def test_what_is_missing_is_invalid(schema, missing):
    assert not schema.is_valid({key: value for key, value in BASE.items() if key != missing})


def test_each_bound_of_a_limit_is_in_the_schema(schema):
    for name in LimitsModel.fields:
        assert not schema.is_valid(changed(("limits", name), 0)), name
        assert not schema.is_valid(changed(("limits", name), 1 << 60)), name
        assert not schema.is_valid(changed(("limits", name), "much")), name


def test_every_field_is_in_the_schema_and_families_are_offered():
    made = json_schema()
    assert set(made["properties"]) == {*PolicyModel.fields, *ExtendsModel.fields}
    context = made["$defs"]["Rule"]["properties"]
    assert set(context) == set(Rule.fields)
    offered = context["serializers"]["items"]["anyOf"][0]["enum"]
    assert offered == [family for family in FAMILIES if family != "error"]
    assert ":class:" not in str(made)
