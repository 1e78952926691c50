"""Decisions: against a reference evaluator, and the properties that truly hold.

Removing a context can permit more, since it may uncover a broader one below; what holds instead is
tested here: removing families, operations or a submission never permits more, an appended context
changes only what nothing matched, and a changed context changes only what it matched.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from safeser.errors import ConfigError, PolicyDenied
from safeser.operations import GROUPS
from safeser.operations import NAMES as OPERATION_NAMES
from safeser.policy import Policy
from safeser.policy.decide import Table
from safeser.policy.rules import CODE_OPERATIONS
from safeser.policy.source.context import Rule
from safeser.values import Context, Decision, Kind, Suite

PRINCIPALS = {"a": {"groups": ["g"]}, "b": {"groups": ["g", "h"]}, "c": {}}
NAMES = ("a", "b", "c", "stranger")
FAMILIES = (None, "msgpack", "error", "dask", "pickle", "cloudpickle", "cuda")
OPERATIONS_ASKED = (
    None,
    "identity",
    "update-graph",
    "run",
    "gather",
    "UPDATE-GRAPH",
    "",
    "no-such",
)
LISTABLE = ("dask", "pickle", "cloudpickle")


# --- the reference: the documented rules as plain loops over the file's values -----------------


def reference(
    policy: dict[str, Any], context: Context, family: Any, sealing: bool, author: str | None
) -> tuple[bool, str]:
    def who(name: str) -> str:
        return name if name in policy["principals"] else "unknown"

    def listed(names: list[str], name: str) -> bool:
        groups = policy["principals"].get(name, {}).get("groups", [])
        return name in names or any(f"group:{group}" in names for group in groups)

    sender, recipient, kind = who(context.sender), who(context.recipient), context.kind.value
    for rule in policy["contexts"]:
        if not listed(rule["sender"], sender) or not listed(rule["recipient"], recipient):
            continue
        if "kinds" in rule and kind not in rule["kinds"]:
            continue
        if "transport" in rule and context.transport not in rule["transport"]:
            continue
        if "same_host" in rule and context.same_host is not rule["same_host"]:
            continue
        break
    else:
        return False, "context.none"
    if context.operation is not None:
        granted: set[str] = set()
        for name in rule.get("operations", {}).get("grant", []):
            granted |= GROUPS.get(name, {name})
        if context.operation not in granted:
            return False, "operation.not-granted"
        if context.operation == "update-graph" and rule.get("submission", "none") == "none":
            return False, "submission.none"
    if kind == "admin" and family != "msgpack":
        return False, "floor.admin"
    if family in ("pickle", "cloudpickle") and "unknown" in (sender, recipient):
        return False, "floor.unknown"
    families = rule.get("serializers" if sealing else "deserializers", ["msgpack"])
    if family not in [*families, "error"]:
        return False, "context.family"
    own = author in (None, context.sender) or family not in ("pickle", "cloudpickle")
    if not own and not listed(rule.get("authors", []), author):
        return False, "author.relayed"
    return True, "permit"


# --- small random policies --------------------------------------------------------------------


def some(values: Any, most: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=most, unique=True)


@st.composite
def contexts(draw: st.DrawFn) -> dict[str, Any]:
    ends = some(("a", "b", "c", "group:g", "group:h", "unknown"), 3)
    rule: dict[str, Any] = {"sender": draw(ends), "recipient": draw(ends)}
    if draw(st.booleans()):
        rule["kinds"] = draw(some([kind.value for kind in Kind], 3))
    for side in ("serializers", "deserializers"):
        if draw(st.booleans()):
            rule[side] = ["msgpack", *draw(some(LISTABLE, 3))]
    if draw(st.booleans()):
        rule["operations"] = {"grant": draw(some(("basic", "diagnose", "run", "gather"), 2))}
    if draw(st.booleans()):
        rule["submission"] = draw(st.sampled_from(("code", "approved")))
    if draw(st.booleans()):
        rule["authors"] = draw(some(("a", "c", "group:g"), 2))
    if draw(st.booleans()):
        rule["transport"] = draw(some(("safeser", "library", "tcp"), 2))
    if draw(st.booleans()):
        rule["same_host"] = draw(st.booleans())
    return legal(rule)


def legal(rule: dict[str, Any]) -> dict[str, Any]:
    """Cut *rule* to what loads, so that few random policies are thrown away."""
    unknown = "unknown" in rule["sender"] + rule["recipient"]
    if unknown:
        rule.pop("submission", None)
    keep = {"msgpack", "dask", *(() if unknown else ("pickle",))}
    if rule.get("submission") == "code":
        keep.add("cloudpickle")
    if rule.get("kinds") == ["admin"]:
        keep = {"msgpack"}
    for side in ("serializers", "deserializers"):
        if side in rule:
            rule[side] = [family for family in rule[side] if family in keep]
            if "cloudpickle" in rule[side] and "pickle" not in rule[side]:
                rule[side].append("pickle")
    kinds = rule.get("kinds", ["control"])
    grant = [
        name
        for name in rule.get("operations", {}).get("grant", [])
        if (name != "run" or (rule.get("submission") == "code" and "control" in kinds))
        and (name != "gather" or kinds != ["admin"])
        and (not unknown or name in ("basic", "gather"))
    ]
    rule.pop("operations", None)
    if grant:
        rule["operations"] = {"grant": grant}
    graphs = [side for side in ("serializers", "deserializers") if "pickle" in rule.get(side, ())]
    if rule.get("submission") == "approved" and (len(graphs) < 2 or "basic" not in grant):
        rule.pop("submission")
    if (
        not graphs
        or rule["sender"] in (["a"], ["c"])
        or "safeser" not in rule.get("transport", ["safeser"])
    ):
        rule.pop("authors", None)
    if "task" not in kinds and "kinds" in rule and rule.get("submission") == "approved":
        rule.pop("submission")
    if rule.get("transport") == ["tcp"] and not unknown:
        rule.pop("transport")
    if rule.get("transport") == ["safeser"] and ["unknown"] in (rule["sender"], rule["recipient"]):
        rule.pop("transport")
    return rule


def written(rules: list[dict[str, Any]]) -> dict[str, Any]:
    named = [{"name": f"x{index}", **rule} for index, rule in enumerate(rules)]
    head = {"safeser": 1, "name": "random", "revision": 1}
    return {**head, "principals": PRINCIPALS, "contexts": named}


def loaded(policy: dict[str, Any]) -> Policy:
    return Policy.parse(json.dumps(policy, indent=1))


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    rules: list[dict[str, Any]] = []
    for rule in draw(st.lists(contexts(), min_size=1, max_size=4)):
        try:
            loaded(written([*rules, rule]))
        except ConfigError:
            continue  # unreachable below the others
        rules.append(rule)
    assume(rules)
    return written(rules)


def questions() -> Iterator[tuple[Context, Any, bool, str | None]]:
    # Each with one way that it came and one author: all together would be thirty times as many.
    ways = itertools.cycle(
        [*itertools.product(("safeser", "library", "tcp"), (True, False)), (None, None)]
    )
    authors = itertools.cycle(("any", "a", "unknown", "b", "c"))
    for sender, recipient, kind in itertools.product(NAMES, NAMES, Kind):
        for operation in OPERATIONS_ASKED:
            transport, same_host = next(ways)
            context = Context(
                sender, recipient, kind, operation, transport=transport, same_host=same_host
            )
            for family in FAMILIES:
                yield context, family, False, None
                yield context, family, True, None
                yield context, family, False, next(authors)


QUESTIONS = tuple(questions())

TAKEN = ("serializers", "deserializers", "operations")


def permits(policy: Policy, question: tuple[Context, Any, bool, str | None]) -> bool:
    context, family, sealing, author = question
    return policy.decide(context, family, sealing=sealing, author=author).permitted


# --- the properties ---------------------------------------------------------------------------


@given(policies())
@settings(max_examples=30, deadline=None)
def test_decide_is_the_reference(spelled: dict[str, Any]) -> None:
    policy = loaded(spelled)
    for context, family, sealing, author in QUESTIONS:
        decision = policy.decide(context, family, sealing=sealing, author=author)
        expected = reference(spelled, context, family, sealing, author)
        assert (decision.permitted, decision.rule) == expected, (context, family, sealing, author)


@given(policies())
@settings(max_examples=15, deadline=None)
def test_floors_grants_and_denials(spelled: dict[str, Any]) -> None:
    policy = loaded(spelled)
    for context, family, sealing, author in QUESTIONS:
        decision = policy.decide(context, family, sealing=sealing, author=author)
        if not decision.permitted:
            assert decision.reason
            assert decision.fix
            continue
        assert decision.rule == "permit"
        assert policy.permits_operation(context).permitted
        grant = policy.grant(context, sealing=sealing)
        assert family in grant.families
        assert grant.context == decision.context
        assert context.operation is None or context.operation in grant.operations
        if context.kind is Kind.ADMIN:
            assert family == "msgpack"
        if family in ("pickle", "cloudpickle"):
            assert {context.sender, context.recipient} <= {"a", "b", "c"}
            assert author in (None, context.sender) or author in grant.authors
            assert grant.profiles or family == "cloudpickle"
        if family == "cloudpickle":
            assert grant.submission == "code"
        if context.operation == "update-graph":
            assert grant.submission in ("approved", "code")


@given(policies(), st.data())
@settings(max_examples=15, deadline=None)
def test_taking_away_from_a_context_never_permits_more(
    spelled: dict[str, Any], data: st.DataObject
) -> None:
    before = loaded(spelled)
    rule = data.draw(st.sampled_from(spelled["contexts"]))
    fields = [name for name in (*TAKEN, "authors") if name in rule]
    assume(fields)
    field = data.draw(st.sampled_from(fields))
    del rule[field]
    try:
        fewer = loaded(spelled)
    except ConfigError:
        assume(False)  # what is left of it has no effect
    for question in QUESTIONS:
        assert not permits(fewer, question) or permits(before, question), question


@given(policies(), contexts())
@settings(max_examples=15, deadline=None)
def test_an_appended_context_changes_only_what_nothing_matched(
    spelled: dict[str, Any], last: dict[str, Any]
) -> None:
    longer = {**spelled, "contexts": [*spelled["contexts"], {"name": "last", **last}]}
    try:
        after = loaded(longer)
    except ConfigError:
        assume(False)
    before = loaded(spelled)
    for context, family, sealing, author in QUESTIONS:
        one = before.decide(context, family, sealing=sealing, author=author)
        other = after.decide(context, family, sealing=sealing, author=author)
        assert one == other or (one.rule == "context.none" and other.context == "last")
        # Read backwards: removing the last context never permits more.
        assert other.permitted or not one.permitted


@given(policies(), st.data())
@settings(max_examples=15, deadline=None)
def test_removing_a_context_changes_only_what_it_matched(
    spelled: dict[str, Any], data: st.DataObject
) -> None:
    assume(len(spelled["contexts"]) > 1)
    gone = data.draw(st.sampled_from(spelled["contexts"]))
    rest = {**spelled, "contexts": [rule for rule in spelled["contexts"] if rule is not gone]}
    before, after = loaded(spelled), loaded(rest)
    for context, family, sealing, author in QUESTIONS:
        one = before.decide(context, family, sealing=sealing, author=author)
        other = after.decide(context, family, sealing=sealing, author=author)
        same = (one.permitted, one.rule, one.context) == (
            other.permitted,
            other.rule,
            other.context,
        )
        assert same or one.context == gone["name"]


def test_removing_a_context_can_permit_more() -> None:
    narrow = {"sender": ["a"], "recipient": ["b"]}
    broad = {"sender": ["group:g"], "recipient": ["b"], "deserializers": ["msgpack", "dask"]}
    assert not loaded(written([narrow, broad])).decide(Context("a", "b"), "dask").permitted
    assert loaded(written([broad])).decide(Context("a", "b"), "dask").permitted


def placed(
    sender: str, recipient: str, kind: Kind, transport: str | None, same_host: bool | None
) -> Context:
    return Context(sender, recipient, kind, transport=transport, same_host=same_host)


@given(policies())
@settings(max_examples=15, deadline=None)
def test_counterparts_are_whom_some_context_joins(spelled: dict[str, Any]) -> None:
    policy = loaded(spelled)
    for one in NAMES:
        expected = {
            other
            for other in PRINCIPALS
            for sender, recipient in ((one, other), (other, one))
            for kind in Kind
            for way in itertools.product(("safeser", "library", "tcp", None), (True, False, None))
            if reference(spelled, placed(sender, recipient, kind, *way), "msgpack", False, None)[0]
        }
        assert policy.counterparts(one) == expected == policy.counterparts(one)


# --- examples and attacks ---------------------------------------------------------------------


def code_policy() -> Policy:
    families = ["dask", "msgpack", "pickle", "cloudpickle"]
    rule = {
        "sender": ["a"],
        "recipient": ["b"],
        "submission": "code",
        "serializers": families,
        "deserializers": families,
        "pickle": {"profile": ["data", "numpy"]},
        "operations": {"grant": ["basic", "run"]},
    }
    return loaded(written([rule]))


def test_pickle_is_not_smuggled_into_an_admin_message() -> None:
    policy = code_policy()
    context = Context("a", "b", "admin")
    for family in ("pickle", "cloudpickle", "dask", "error"):
        assert policy.decide(context, family).rule == "floor.admin"
    assert policy.decide(context, "msgpack").permitted
    grant = policy.grant(context)
    assert (grant.families, grant.profiles) == (("msgpack",), ())


def test_the_grant_is_the_contexts_in_its_order() -> None:
    grant = code_policy().grant(Context("a", "b", "task"))
    assert grant.families == ("dask", "msgpack", "pickle", "cloudpickle", "error")
    assert grant.profiles == ("data", "numpy")
    assert grant.submission == "code"
    assert grant.operations == GROUPS["basic"] | GROUPS["run"]


def test_no_context_no_grant() -> None:
    with pytest.raises(PolicyDenied) as caught:
        code_policy().grant(Context("b", "a"))
    assert caught.value.rule == "context.none"
    assert caught.value.fix
    with pytest.raises(PolicyDenied):
        code_policy().grant(Context("b", "a"))


@pytest.mark.parametrize("author", ["any", "c", "unknown", "b"])
def test_what_somebody_else_wrote_passes_only_as_data(author: str) -> None:
    policy = code_policy()
    context = Context("a", "b")
    for family in ("pickle", "cloudpickle"):
        assert policy.decide(context, family, author=author).rule == "author.relayed"
        assert policy.decide(context, family, author="a").permitted
        assert policy.decide(context, family, author=None).permitted
    for family in ("dask", "msgpack", "error"):
        assert policy.decide(context, family, author=author).permitted


def test_two_strangers_are_not_one_author() -> None:
    rule = {"sender": ["unknown"], "recipient": ["b"]}
    policy = loaded(written([rule]))
    assert policy.decide(Context("eve", "b"), "msgpack", author="mallory").permitted
    assert policy.decide(Context("eve", "b"), "pickle", author="mallory").rule == "floor.unknown"


@pytest.mark.parametrize(
    "operation", ["identity ", "Identity", "ident\u0131ty", "run\0", "?", "\ud800"]
)
def test_an_unknown_operation_is_never_granted_nor_printed(operation: str) -> None:
    decision = code_policy().decide(Context("a", "b", "control", operation), "msgpack")
    assert decision.rule == "operation.not-granted"
    assert operation not in decision.reason.replace(" operation unknown", "")
    assert "No policy can permit" in decision.fix


@pytest.mark.parametrize("family", [None, "", "?", "cuda", "PICKLE", "pickle ", "\ud800"])
def test_an_unknown_family_is_never_permitted(family: str | None) -> None:
    decision = code_policy().decide(Context("a", "b"), family)
    assert decision.rule == "context.family"
    assert "No policy can permit" in decision.fix


def test_an_unknown_kind_matches_nothing() -> None:
    context = Context("a", "b")
    object.__setattr__(context, "kind", "everything")
    assert code_policy().match(context) is None


def test_the_floors_hold_whatever_a_rule_says() -> None:
    everything = ("msgpack", "dask", "pickle", "cloudpickle")
    rule = Rule.model_construct(
        name="forged",
        suite=Suite.AUTHENTICATE,
        senders=frozenset({"unknown", "a"}),
        recipients=frozenset({"unknown", "a"}),
        kinds=frozenset(Kind),
        serializers=everything,
        deserializers=everything,
        submission="code",
        operations=OPERATION_NAMES,
    )
    table = Table([rule], ["a"])
    for sender, recipient in (("unknown", "a"), ("a", "unknown"), ("eve", "a"), ("a", "eve")):
        for family in ("pickle", "cloudpickle"):
            for sealing in (False, True):
                context = Context(sender, recipient, "task")
                decision = table.decide(context, family, sealing=sealing)
                assert decision.rule == "floor.unknown"
                grant = table.grant(context, sealing=sealing)
                assert grant.families == ("msgpack", "dask", "error")
                assert grant.profiles == ()
    assert table.decide(Context("a", "a", "admin"), "pickle").rule == "floor.admin"
    assert table.grant(Context("a", "a", "admin")).families == ("msgpack",)


def test_submitting_needs_a_submission_and_nothing_else_does() -> None:
    rule = {"sender": ["a"], "recipient": ["b"], "operations": {"grant": ["basic"]}}
    policy = loaded(written([rule]))
    graph = Context("a", "b", "task", "update-graph")
    assert policy.decide(graph, "msgpack").rule == "submission.none"
    assert policy.permits_operation(graph).rule == "submission.none"
    assert policy.permits_operation(Context("a", "b", "admin", "identity")).permitted
    assert policy.permits_operation(Context("a", "b", "admin")).permitted
    assert policy.permits_operation(Context("a", "b", "control", "run")).rule == (
        "operation.not-granted"
    )
    assert policy.permits_operation(Context("b", "a")).rule == "context.none"


def test_decisions_are_remembered_and_the_memory_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("safeser.policy.decide._CACHE_MAX", 8)
    policy = code_policy()
    first = policy.decide(Context("a", "b"), "dask")
    assert policy.decide(Context("a", "b"), "dask") is first
    for question in QUESTIONS[::7]:
        policy.decide(question[0], question[1])
    for sender, recipient, kind in itertools.product((*NAMES, "unknown"), NAMES, Kind):
        with_grant(policy, Context(sender, recipient, kind))
    table = policy._table
    assert len(table._decisions) <= 8
    assert len(table._grants) <= 8
    assert policy.decide(Context("a", "b"), "dask") == first


def test_inventions_of_a_peer_share_one_entry() -> None:
    policy = code_policy()
    for number in range(1000):
        context = Context("a", "b", "control", f"op-{number}")
        policy.decide(context, f"family-{number}", author=f"author-{number}")
        policy.decide(Context(f"s{number}", f"r{number}"), "pickle")
    assert len(policy._table._decisions) == 2


def with_grant(policy: Policy, context: Context) -> object:
    try:
        return policy.grant(context)
    except PolicyDenied as denial:
        return denial


def test_a_decision_is_never_taken_for_its_answer() -> None:
    with pytest.raises(TypeError):
        bool(code_policy().decide(Context("a", "b"), "dask"))


def test_code_operations_exist() -> None:
    assert OPERATION_NAMES >= CODE_OPERATIONS
    assert {"run", "upload_file", "run_function"} <= CODE_OPERATIONS
    assert isinstance(code_policy().decide(Context("a", "b"), None), Decision)
