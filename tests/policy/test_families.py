"""Families that programs register: declared by the policy, never for whom nobody authenticated."""

import pytest

from safeser.errors import ConfigError
from safeser.gate.values import Context
from safeser.policy import Policy

TEXT = """
safeser: 1
name: own
revision: 1
{families}
principals: {{alice: {{}}, bob: {{}}}}
contexts:
  - name: first
    sender: {sender}
    recipient: bob
    kinds: {kinds}
    serializers: [msgpack]
    deserializers: {deserializers}
"""


def policy(*, families="families: [my-frames]", **given):
    words = {"sender": "alice", "kinds": "[admin, data]", "deserializers": "[my-frames, msgpack]"}
    return Policy.parse(TEXT.format(families=families, **{**words, **given}))


HERE = Context("alice", "bob")


def test_what_is_declared_and_listed_passes():
    decided = policy().decide(HERE, "my-frames")
    assert decided.permitted
    assert policy().grant(HERE).families == ("my-frames", "msgpack", "error")
    for family in ("your-frames", "dask", "My-Frames"):
        decision = policy().decide(HERE, family)
        assert (decision.permitted, decision.rule) == (False, "context.family")
    assert "your-frames" not in policy().decide(HERE, "your-frames").reason


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"families": ""}, "my-frames"),
        ({"families": "families: [my-frame]"}, "my-frame"),
        ({"families": "families: [dask]"}, "built-in"),
        ({"families": "families: [unknown]"}, "built-in"),
        ({"families": "families: [My-Frames]"}, "cannot name"),
        ({"families": "families: [a b]"}, "cannot name"),
        ({"families": "families: [my-frames, my-frames]"}, "twice"),
        ({"families": "families: my-frames"}, "list"),
        ({"sender": "unknown"}, "unknown"),
        ({"kinds": "[admin]"}, "plain msgpack"),
        ({"deserializers": "[my-frames]"}, "msgpack"),
    ],
)
def test_what_does_not_load(given, word):
    with pytest.raises(ConfigError, match=word) as caught:
        policy(**given)
    assert "line" in caught.value.where or "families" in str(caught.value)
