"""The parts of a link that Dask's comm uses: several payloads, authors, narrowing, sending."""

from __future__ import annotations

import pickle

import pytest

from safeser import families, pickles
from safeser.errors import ConfigError, PayloadError, PolicyDenied
from safeser.gate.session import SessionClosed
from safeser.gate.values import Context, Kind, Payload
from tests.refusal import refusal

PICKLE = {"serializer": "pickle", "writeable": []}
ONE = ({"serializer": "msgpack"}, [b"\x01"])


class Side:
    """A link, and one message that arrived on it; what the tests hand in is said to be in it."""

    def __init__(self, link, peer):
        self._link = link
        self.message = link.verify(peer.session.seal(b"", []))

    def payload(self, *args, **options):
        return self._link.payload(self.message, *args, **options)

    def admit(self, *args, **options):
        return self._link.admit(self.message, *args, **options)

    def __getattr__(self, name):
        return getattr(self._link, name)


@pytest.fixture
def links(doors, policy):
    def made(one, two, text=policy):
        near, far = doors.links(one, two, text)
        return Side(near, far), Side(far, near)

    return made


def test_a_message_without_payloads_is_counted(links):
    _, bea = links("ann", "bea")
    assert bea.load(bea.admit(bea.inbound(Kind.ADMIN, "identity"))) == []
    assert bea.audit.counts == [
        ("ann", "bea", "handshake", "suite.encrypt", True),
        ("ann", "bea", "identity", "permit", True),
    ]
    assert bea.audit.events == []


def test_a_count_that_cannot_be_kept_refuses_the_message(links):
    _, bea = links("ann", "bea")
    bea.audit.broken = {"count"}
    with pytest.raises(Exception, match="disk is full"):
        bea.admit(bea.inbound(Kind.ADMIN, "identity"))


def test_a_peer_that_closes_is_recorded_by_nobody_as_a_stranger(links):
    ann, bea = links("ann", "bea")
    with refusal(SessionClosed, "envelope.closed"):
        bea.verify([ann.session.closing()])
    assert bea.audit.events == []


@pytest.mark.parametrize("link", [0, 1])
def test_a_context_of_other_people_is_refused(links, link):
    pair = links("ann", "bea")
    for context in (Context("cy", "bea"), Context("ann", "cy"), Context("unknown", "bea")):
        with refusal(PolicyDenied, "context.session"):
            pair[link].admit(context)


class _Fails:
    def __reduce__(self):
        return int, ("no number",)


def test_a_payload_that_cannot_be_loaded_is_recorded_once_more(links):
    _, bea = links("ann", "bea")
    context = bea.inbound(Kind.DATA)
    admitted = bea.admit(context, [bea.payload(context, "x", PICKLE, [pickle.dumps(_Fails())])])
    with pytest.raises(PayloadError) as caught:
        bea.load(admitted)
    assert caught.value.where == "x"
    assert caught.value.recorded
    assert bea.audit.order == ["admit", "load"]
    assert bea.audit.rules == ["families.build"]


# --- authors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("author", "seen"), [("ann", {"my.lib:Thing"}), ("cy", set())])
def test_types_of_other_libraries_are_for_their_sender_alone(
    links, policy, monkeypatch, author, seen
):
    grants = []
    real = families.build

    def spy(checked, **options):
        grants.append(checked.grant)
        return real(checked, **options)

    listed = 'recipient: bea\n    dask: {types: ["my.lib:Thing"]}'
    _, bea = links("ann", "bea", policy.replace("recipient: bea", listed, 1))
    monkeypatch.setattr(families, "build", spy)
    context = bea.inbound(Kind.DATA)
    bea.load(bea.admit(context, [bea.payload(context, "a", *ONE, author=author)]))
    assert [grant.types for grant in grants] == [seen]


@pytest.fixture
def relayed(links, policy):
    """Return ann's and bea's sides where ann may relay what cy wrote, and dora's words not."""
    text = policy.replace("recipient: bea\n", "recipient: bea\n    authors: [cy]\n", 1)
    return links("ann", "bea", text)


@pytest.mark.parametrize("author", ["cy", "ann"])
def test_what_a_listed_author_wrote_passes_as_the_context_permits(relayed, author):
    ann, bea = relayed
    context = bea.inbound(Kind.DATA)
    payload = bea.payload(context, "a", PICKLE, [pickle.dumps({"x": 1})], author=author)
    assert bea.load(bea.admit(context, [payload])) == [{"x": 1}]
    assert bea.audit.events[-1]["author"] == author
    frames = (pickle.dumps(1),)
    ann.permit_sending(ann.outbound(Kind.DATA), Payload("x", "pickle", PICKLE, frames, author))


@pytest.mark.parametrize("author", ["dora", "bea", "any", "unknown", "group:x", "cy "])
def test_what_an_unlisted_author_wrote_is_not_even_read(relayed, author):
    ann, bea = relayed
    context = bea.inbound(Kind.DATA)
    # Not a pickle at all: whoever read it would say so.
    payload = bea.payload(context, "a", PICKLE, [b"\x80\x04nonsense"], author=author)
    with refusal(PolicyDenied, "author.relayed"):
        bea.admit(context, [payload])
    own = Payload("x", "pickle", PICKLE, (pickle.dumps(1),), author)
    with refusal(PolicyDenied, "author.relayed"):
        ann.permit_sending(ann.outbound(Kind.DATA), own)


# --- how a link travels -----------------------------------------------------------------------


def test_a_caller_does_not_say_how_a_link_travels(doors, policy):
    text = policy.replace("recipient: bea\n", "recipient: bea\n    transport: safeser\n", 1)
    ann, bea = doors.links("ann", "bea", text)
    # A program's own link is no connection of Dask's, whatever its caller writes.
    for claimed in (
        Context("ann", "bea", transport="safeser"),
        Context("ann", "bea", transport="safeser", same_host=True),
        Context("ann", "bea", transport="library", same_host=True),
        Context("ann", "bea", same_host=False),
    ):
        message = bea.verify(ann.session.seal(b"", []))
        for call, value in ((ann.seal, 1), (bea.admit, message), (bea.admit_message, message)):
            with refusal(PolicyDenied, "context.session"):
                call(value, claimed)
    with refusal(PolicyDenied, "context.none"):
        ann.seal(1, Context("ann", "bea"))
    library = policy.replace("recipient: bea\n", "recipient: bea\n    transport: library\n", 1)
    ann, bea = doors.links("ann", "bea", library)
    for context in (Context("ann", "bea"), Context("ann", "bea", transport="library")):
        assert bea.admit_message(bea.verify(ann.seal([1], context)), context)


# --- families ---------------------------------------------------------------------------------


def named_pickle(*names):
    """Return a pickle that holds instances of *names* in a list."""
    lines = [f"c{name.replace(':', chr(10))}\n".encode() + b")\x81" for name in names]
    return b"\x80\x04](" + b"".join(lines) + b"e."


@pytest.mark.parametrize(
    ("names", "words", "fix"),
    [
        (["my.lib:Point"], "my.lib:Point is instantiated", '"my.lib:Point": class}'),
        (
            ["my:A", "my:B"],
            "; refused too: my:B at byte 4, which makes it code",
            '{"my:A": class, "my:B": class}',
        ),
        (["os:system"], "os:system is instantiated", "Only family cloudpickle"),
        (["my:A", "os:system"], "; refused too: os:system", "Only family cloudpickle"),
        (["m\u0430:P"], "m\\u0430:P is instantiated", "letters beyond ASCII"),
    ],
)
def test_a_refused_pickle_is_refused_by_the_names_in_it(links, names, words, fix):
    _, ann = links("bea", "ann")
    context = ann.inbound(Kind.DATA)
    payload = ann.payload(context, "a", PICKLE, [named_pickle(*names)])
    assert payload.family == "cloudpickle"
    with pytest.raises(PolicyDenied) as caught:
        ann.admit(context, [payload])
    assert (caught.value.rule, caught.value.where) == ("context.family", "a")
    assert words in caught.value.message
    assert "at byte 4" in caught.value.message
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("sender", "recipient", "family"),
    [("ann", "bea", "cloudpickle"), ("bea", "ann", "pickle")],  # where code is granted, and not
)
def test_a_pickle_is_what_it_needs_where_one_may_pass(links, marker, sender, recipient, family):
    _, link = links(sender, recipient)
    context = link.inbound(Kind.DATA)
    assert link.payload(context, "a", PICKLE, [pickle.dumps(1)]).family == family
    assert link.payload(context, "a", PICKLE, [marker.pickle]).family == "cloudpickle"
    if family == "pickle":
        with pytest.raises(PayloadError):
            link.payload(context, "a", PICKLE, [b"\x80\x04nonsense"])


@pytest.mark.parametrize("kind", [Kind.TASK, Kind.DATA])  # no context at all, and one without them
def test_where_no_pickle_may_pass_none_is_read(links, marker, monkeypatch, kind):
    """Reading one takes seconds for megabytes of opcodes, and the answer is no already."""
    monkeypatch.setattr(pickles, "parse", lambda *args, **options: pytest.fail("read"))
    _, bea = links("cy", "bea")
    context = bea.inbound(kind)
    for data in (pickle.dumps(1), marker.pickle, b"\x80\x04nonsense"):
        payload = bea.payload(context, "a", PICKLE, [data])
        assert payload.family == "pickle"


#: A family, the list that a caller gives, and whether that takes it away.
LISTS = [
    ("msgpack", [], False),
    ("error", [], False),
    ("dask", ["dask"], False),
    ("dask", ["msgpack"], True),
    ("pickle", ["dask", "msgpack"], True),
    ("cloudpickle", ["pickle"], False),
    ("cloudpickle", ["dask"], True),
    ("cloudpickle", None, False),
]


@pytest.mark.parametrize(("family", "asked", "taken"), LISTS)
def test_a_callers_list_takes_away(links, family, asked, taken):
    _, bea = links("ann", "bea")
    payload = Payload("a", family, {}, (), "ann")
    refusal = bea.caller_refusal(bea.inbound(Kind.DATA), payload, asked)
    assert (refusal is not None) is taken
    assert bea.audit.rules == ["caller.deserializers"] * taken


# --- operations and sending -------------------------------------------------------------------


def test_an_operation_must_be_granted_to_leave_and_inside_another_too(links):
    cy, bea = links("cy", "bea")
    cy.permit_operation(cy.outbound(Kind.ADMIN, "identity"))
    with pytest.raises(PolicyDenied):
        cy.permit_operation(cy.outbound(Kind.CONTROL, "run"))
    assert cy.audit.rules == ["context.none"]
    bea.permit_named(bea.inbound(Kind.ADMIN, "identity"), where="msg.op")
    with pytest.raises(PolicyDenied) as caught:
        bea.permit_named(bea.inbound(Kind.DATA, "run"), where="msg.op")
    assert caught.value.where == "msg.op"
    assert bea.audit.rules == ["operation.not-granted"]


def test_what_may_leave_is_cut_to_what_was_asked_for(links):
    ann, _ = links("ann", "bea")
    context = ann.outbound(Kind.DATA)
    assert "cloudpickle" in ann.allowed(context).families
    assert "cloudpickle" in ann.allowed(context, ["pickle"]).families
    assert "pickle" not in ann.allowed(context, ["dask"]).families


@pytest.mark.parametrize(("kind", "operation"), [("control", "restart"), ("task", "update-graph")])
def test_authority_without_a_payload_is_recorded_before_it_is_acted_upon(doors, kind, operation):
    alice, scheduler = doors.channel("alice", "demo"), doors.channel("scheduler", "demo")
    near, far = doors.shake(alice, scheduler)
    Side(far, near).admit(Context("alice", "scheduler", kind, operation))
    assert far.audit.order == ["admit"]
    assert far.audit.events[0]["operation"] == operation


def test_a_connection_of_somebody_else_is_not_used_by_the_channels_own_calls(doors):
    alice, scheduler = doors.channel("alice", "demo"), doors.channel("scheduler", "demo")
    near, far = doors.handshakes(alice, scheduler)
    alice.link(near, shared=False)
    scheduler.link(far, shared=False)
    with refusal(ConfigError, "channel.no-session"):
        alice.seal(1, Context("alice", "scheduler", "data"))
