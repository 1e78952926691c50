"""What a grant carries from its policy to the cache of verdicts."""

from __future__ import annotations

import pickle

from safeser import families, pickles
from safeser.policy import Policy
from safeser.values import Context, Grant, Limits


def test_a_grant_names_its_policy():
    policy = Policy.load("default")
    context = Context(sender="scheduler", recipient="worker", kind="data")
    grant = policy.grant(context)
    assert grant.policy == policy.sha256
    assert grant.narrowed(("msgpack",)).policy == policy.sha256


def test_verdicts_are_asked_for_in_the_name_of_the_policy(monkeypatch):
    asked = []
    real = pickles.loads

    def noted(*args, **options):
        asked.append(options["policy"])
        return real(*args, **options)

    monkeypatch.setattr(pickles, "loads", noted)
    data = pickle.dumps([1, 2], 5)
    header = {"serializer": "pickle", "writeable": []}
    for policy in ("one", "another"):
        grant = Grant("test", ("pickle",), policy=policy)
        assert families.deserialize(header, [data], grant, limits=Limits()) == [1, 2]
    assert asked == ["one", "another"]
