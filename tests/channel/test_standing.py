"""What may follow what: policies, rosters and identities that change while a process runs."""

from __future__ import annotations

import datetime
import os
import pickle
from dataclasses import replace

import pytest

from safeser.channel import Ending
from safeser.channel.standing import SENTENCES
from safeser.errors import AuthenticationError, ConfigError, EnvelopeError, PolicyDenied
from safeser.gate.values import Kind
from safeser.identity import KeyState, Roster, SigningKey
from safeser.policy import Policy
from tests.channel.rosters import DAY, Calendar, changed, entry, raised, without
from tests.refusal import refusal

# --- policies ------------------------------------------------------------------------------------


def test_a_higher_revision_is_taken_and_recorded(bea, policy):
    before, newer = bea.standing, raised(policy)
    assert not bea.adopt(policy=Policy.parse(policy))
    assert bea.standing is before
    assert bea.adopt(policy=newer)
    assert bea.policy is newer
    assert [(e["event"], e["rule"]) for e in bea.audit.events] == [("reload", "policy.adopted")]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (("revision: 3", "revision: 2"), "policy.older"),
        (("name: doors", "name: windows"), "policy.same-revision"),
    ],
)
def test_an_older_one_and_another_text_of_the_same_revision_are_refused(bea, policy, change, rule):
    before = bea.standing
    with refusal(ConfigError, rule):
        bea.adopt(policy=Policy.parse(policy.replace(*change)), roster=bea.standing.listed)
    assert bea.standing is before


def test_a_grant_that_is_withdrawn_applies_to_the_next_message(bea, policy, sent):
    assert sent([1]) == [1]
    assert sent(os.getpid) is os.getpid
    less = policy.replace("    submission: code\n", "", 1).replace(", cloudpickle]", "]", 2)
    less = less.replace("grant: [basic, run]", "grant: [basic]")
    bea.adopt(policy=raised(less))
    assert sent([2]) == [2]
    with pytest.raises(PolicyDenied) as refused:
        sent(os.getpid)
    assert "posix:getpid" in refused.value.message


def test_a_session_ends_when_no_context_is_left(bea, policy, link):
    gone = policy.replace("sender: ann", "sender: dora").replace("recipient: ann", "recipient: cy")
    gone = gone.replace(
        "  - name: too-much\n    sender: bea", "  - name: too-much\n    sender: dora"
    )
    bea.adopt(policy=raised(gone))
    assert link.over == Ending("policy.no-context", "ann")
    assert link.session.ended


# --- rosters -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda r: changed(r, "ann", state=KeyState.RETIRED), "key.retired"),
        (lambda r: changed(r, "ann", state=KeyState.PENDING), "key.pending"),
        (lambda r: changed(r, "ann", state=KeyState.VERIFY_ONLY), "key.verify-only"),
        (lambda r: changed(r, "ann", principal="cy"), "key.unlisted"),
        (lambda r: changed(r, "ann", not_after=DAY - datetime.timedelta(1)), "key.expired"),
        (lambda r: without(r, "ann"), "key.unlisted"),
    ],
)
def test_a_key_that_may_not_speak_any_more_ends_its_sessions(bea, link, change, rule):
    bea.adopt(roster=change(bea.standing.listed))
    assert link.over == Ending(rule, "ann")
    assert link.session.ended == str(link.over)
    [record] = [e for e in bea.audit.events if e["event"] == "end"]
    assert (record["rule"], record["reason"]) == (rule, str(link.over))
    with pytest.raises(EnvelopeError):
        link.session.seal(b"", [])
    assert bea.live_links() == []


def test_what_was_verified_before_is_not_admitted_afterwards(doors, policy, bea, link):
    ann = doors.channel("ann", policy)
    near, far = doors.shake(ann, bea)
    verified = far.verify(near.seal(1, near.outbound(Kind.DATA)))
    bea.adopt(roster=changed(bea.standing.listed, "ann", state=KeyState.RETIRED))
    with refusal(PolicyDenied, "key.retired"):
        far.admit_message(verified, far.inbound(Kind.DATA))
    with pytest.raises(PolicyDenied):
        far.permit_operation(far.outbound(Kind.DATA))


def test_a_session_ends_though_its_record_cannot_be_written_and_others_go_on(
    doors, policy, bea, link, caplog
):
    _, other = doors.shake(doors.channel("cy", policy), bea)
    bea.audit.broken = {"end", "reload"}
    bea.adopt(roster=changed(bea.standing.listed, "ann", state=KeyState.RETIRED))
    assert link.session.ended
    assert other.over is None
    assert bea.live_links() == [other]
    assert "disk is full" in caplog.text


def test_sessions_that_end_for_one_reason_are_one_warning(doors, policy, bea, caplog):
    links = [doors.shake(doors.channel("ann", policy), bea)[1] for _ in range(3)]
    bea.adopt(roster=changed(bea.standing.listed, "ann", state=KeyState.RETIRED))
    assert all(link.over for link in links)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert bea.level_of_end("ann", "another") > bea.level_of_end("ann", "another")


def test_sessions_that_an_error_keeps_from_ending_end_with_the_next_look(doors, policy, bea):
    links = [doors.shake(doors.channel("ann", policy), bea)[1] for _ in range(3)]
    record, failed = bea.audit.record, []

    def once(event):
        if event["event"] == "end" and not failed:
            failed.append(event)
            raise RuntimeError("of a sink")
        record(event)

    bea.audit.record = once
    with pytest.raises(RuntimeError, match="of a sink"):
        bea.adopt(roster=changed(bea.standing.listed, "ann", state=KeyState.RETIRED))
    bea.review()
    assert all(link.over for link in links)


def test_what_is_adopted_together_is_adopted_as_a_whole(policy, bea):
    before = bea.standing
    with refusal(ConfigError, "roster.empty"):
        bea.adopt(policy=raised(policy), roster=Roster())
    assert bea.standing is before


@pytest.mark.parametrize("back_to", [KeyState.ACTIVE, KeyState.PENDING, KeyState.VERIFY_ONLY])
def test_a_retired_key_stays_so(bea, back_to):
    before = bea.standing.listed
    bea.adopt(roster=changed(before, "ann", state=KeyState.RETIRED))
    with refusal(ConfigError, "roster.retired-again"):
        bea.adopt(roster=changed(before, "ann", state=back_to))
    bea.adopt(roster=without(before, "ann"))  # its line may go
    with pytest.raises(ConfigError):  # and does not come back, under no name
        bea.adopt(roster=changed(before, "ann", principal="cy"))


ONE_DAY = datetime.timedelta(1)


def signer(number):
    return SigningKey.from_bytes(bytes([number]) * 32)


def test_a_retired_signing_key_does_not_come_back_behind_another_key(doors, bea):
    """A thief keeps the signing key; the line under which it was retired may be struck out."""
    stolen = signer(1).public
    before = changed(bea.standing.listed, "ann", verifying=stolen)
    bea.adopt(roster=before)
    assert bea.roster.author_of(stolen) == "ann"
    bea.adopt(roster=changed(before, "ann", state=KeyState.RETIRED))
    assert bea.roster.author_of(stolen) is None
    second = replace(entry(doors.identity("ann", "second")), verifying=stolen)
    others = without(before, "ann").entries
    for line in (second, replace(second, principal="cy"), replace(second, state=KeyState.PENDING)):
        with refusal(ConfigError, "roster.retired-again") as refused:
            bea.adopt(roster=Roster([*others, line]))
        assert stolen.fingerprint in refused.value.message
    bea.adopt(roster=Roster([*others, replace(second, verifying=signer(2).public)]))
    assert bea.roster.author_of(signer(2).public) == "ann"


def test_a_policy_does_not_bring_it_back_either(doors, policy, bea):
    bea.adopt(roster=changed(bea.standing.listed, "ann", state=KeyState.RETIRED))
    bea.adopt(roster=without(bea.standing.listed, "ann"))
    key = doors.identity("ann").public.text
    with refusal(ConfigError, "roster.retired-again"):
        bea.adopt(policy=raised(policy.replace("ann: {}", f"ann: {{keys: ['{key}']}}", 1)))


@pytest.mark.parametrize(
    ("state", "rule"),
    [(KeyState.RETIRED, "key.retired"), (KeyState.VERIFY_ONLY, "key.verify-only")],
)
def test_a_process_whose_own_key_may_not_speak_ends_its_sessions_and_opens_none(
    doors, policy, bea, link, state, rule
):
    bea.adopt(roster=changed(bea.standing.listed, "bea", state=state))
    assert link.over == Ending(rule, "bea")
    with refusal(AuthenticationError, rule):
        bea.handshake(initiator=True)


def test_a_roster_that_changes_in_the_middle_of_a_handshake_is_the_one_that_counts(
    doors, policy, bea
):
    ann = doors.channel("ann", policy)
    one, two = doors.handshakes(ann, bea)
    assert two.complete
    bea.adopt(roster=changed(bea.standing.listed, "ann", state=KeyState.RETIRED))
    with pytest.raises(AuthenticationError):
        bea.link(two)
    assert two.session().ended
    assert ann.link(one).peer == "bea"


# --- authors -------------------------------------------------------------------------------------


def test_who_has_no_key_left_is_silenced_and_who_was_never_listed_is_not(doors, bea):
    first = bea.standing.listed
    second, third = (entry(doors.identity("cy", name)) for name in ("second", "third"))
    retired = changed(first, "cy", state=KeyState.RETIRED)
    for roster, silenced in (
        (first, False),
        (Roster([*retired.entries, second]), False),  # the second key speaks for it
        (changed(Roster([*retired.entries, second]), "cy", state=KeyState.RETIRED), True),
        (without(first, "cy"), True),
        (Roster([*without(first, "cy").entries, third]), False),
    ):
        bea.adopt(roster=roster)
        assert bea.is_silenced("cy") is silenced
    assert not bea.is_silenced("nobody-ever-listed")


@pytest.mark.parametrize(
    ("state", "silenced"),
    [(KeyState.VERIFY_ONLY, False), (KeyState.RETIRED, True), (KeyState.ACTIVE, False)],
)
def test_the_queued_work_of_verify_only_keys_goes_on_and_that_of_retired_ones_ends(
    doors, policy, bea, state, silenced
):
    near, far = doors.shake(doors.channel("ann", policy), bea)
    verified = far.verify(near.seal(1, near.outbound(Kind.DATA)))
    context = far.inbound(Kind.DATA)
    header, frames = {"serializer": "msgpack"}, [b"\x01"]
    work = far.payload(verified, context, "message", header, frames, author="cy")
    old = entry(doors.identity("cy", "old"), KeyState.RETIRED)
    listed = Roster([*changed(bea.standing.listed, "cy", state=state).entries, old])
    bea.adopt(roster=listed)
    assert bea.is_silenced("cy") is silenced
    if silenced:
        with refusal(PolicyDenied, "author.retired"):
            far.admit(verified, context, [work])
    else:
        assert far.admit(verified, context, [work])


def test_a_verify_only_key_whose_last_day_is_over_silences_its_principal(bea, calendar):
    line = {"state": KeyState.VERIFY_ONLY, "not_after": DAY}
    bea.adopt(roster=changed(bea.standing.listed, "cy", **line))
    for silenced in (False, True):
        assert bea.is_silenced("cy") is silenced
        calendar.day += ONE_DAY
        bea.review()


def test_who_is_silenced_is_told_when_somebody_is_more(bea):
    told = []
    bea.when_silenced(told.append)
    bea.adopt(roster=changed(bea.standing.listed, "cy", comment="laptop"))
    for name in ("cy", "ann"):
        bea.adopt(roster=changed(bea.standing.listed, name, state=KeyState.RETIRED))
    assert told == [{"cy"}, {"cy", "ann"}]


# --- dates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dates", "first"), [({"not_after": DAY}, True), ({"not_before": DAY + ONE_DAY}, False)]
)
def test_a_key_has_sessions_on_its_days_alone(doors, policy, bea, calendar, dates, first):
    bea.adopt(roster=changed(bea.standing.listed, "ann", **dates))
    for opens in (first, not first):
        if opens:
            _, far = doors.shake(doors.channel("ann", policy), bea)
            bea.review()
            assert far.over is None
        else:
            with pytest.raises(AuthenticationError):
                doors.shake(doors.channel("ann", policy), bea)
        calendar.day += ONE_DAY
        bea.review()
    if first:
        assert far.over == Ending("key.expired", "ann")


@pytest.mark.parametrize("jump", [-4000, -1, 1, 300])
def test_a_clock_that_jumps_ends_no_session_that_dates_do_not_end(doors, policy, calendar, jump):
    """Back before the first day of a key, too: its session has begun."""
    bea = doors.channel("bea", policy, today=calendar)
    later = DAY + datetime.timedelta(301)
    bea.adopt(roster=changed(bea.standing.listed, "ann", not_before=DAY, not_after=later))
    _, far = doors.shake(doors.channel("ann", policy), bea)
    calendar.day += datetime.timedelta(jump)
    bea.review()
    assert far.over is None
    assert not far.session.ended


@pytest.mark.parametrize(
    ("dates", "says"),
    [({"not_before": DAY + datetime.timedelta(1)}, "from"), ({"not_after": DAY}, "until")],
)
def test_a_process_does_not_start_outside_the_days_of_its_key(doors, policy, dates, says):
    listed = changed(doors.roster(doors.policy(policy)), "bea", **dates)
    day = DAY if "not_before" in dates else DAY + datetime.timedelta(1)
    with pytest.raises(ConfigError) as refused:
        doors.channel("bea", policy, roster=listed, today=Calendar(day))
    assert says in refused.value.message


# --- several at once -----------------------------------------------------------------------------


def test_every_ending_has_a_sentence_and_a_peers_word_is_one_of_them():
    for rule in SENTENCES:
        assert "ann" in str(Ending.named(rule, "ann"))
    assert Ending.named("key.stolen", "ann") is None
    assert Ending.named("key.retired", "an n\n") is None


# --- a payload between two policies --------------------------------------------------------------


CODE = "grant: [basic, run]"
HEADER = {"serializer": "pickle", "writeable": []}


def less_code(policy):
    """Return the policy in which ann may hand bea pickles and no code, under a higher revision."""
    less = policy.replace("    submission: code\n", "", 1).replace(", cloudpickle]", "]", 2)
    return raised(less.replace(CODE, "grant: [basic]"))


@pytest.mark.parametrize(("value", "passes"), [(len, False), ({"a": 1}, True)])
@pytest.mark.parametrize("granted", ["code", "nothing"])
def test_what_was_not_read_is_judged_once_another_policy_holds(
    doors, policy, granted, value, passes
):
    """It counted as code while that was granted, or as the least: what it holds decides."""
    text = policy
    if granted == "nothing":
        text = policy.replace("[dask, msgpack, pickle, cloudpickle]", "[dask, msgpack]", 2)
        text = text.replace("    submission: code\n", "", 1).replace(CODE, "grant: [basic]")
        text = text.replace("    pickle: {profile: [data, numpy]}\n", "", 1)
    near, far = doors.links("ann", "bea", text)
    verified = far.verify(near.seal(1, near.outbound(Kind.DATA)))
    context = far.inbound(Kind.DATA)
    payload = far.payload(verified, context, "message", HEADER, [pickle.dumps(value)])
    assert payload.family == ("cloudpickle" if granted == "code" else "pickle")
    far.channel.adopt(policy=less_code(policy))
    if passes:
        admitted = far.admit(verified, context, [payload])
        assert [payload.family for payload in admitted.payloads] == ["pickle"]
        assert far.load(admitted) == [value]
    else:
        with pytest.raises(PolicyDenied):
            far.admit(verified, context, [payload])


def test_a_message_is_decided_by_one_policy(doors, policy, bea, monkeypatch):
    """A policy that comes between two payloads of a message is not asked about the second."""
    near, far = doors.shake(doors.channel("ann", policy), bea)
    verified = far.verify(near.seal(1, near.outbound(Kind.DATA)))
    context = far.inbound(Kind.DATA)
    payloads = [
        far.payload(verified, context, f"part {n}", HEADER, [pickle.dumps(len)]) for n in range(2)
    ]
    real = far.caller_refusal

    def change(*args):
        if bea.policy.revision == 3:
            bea.adopt(policy=less_code(policy))
        return real(*args)

    monkeypatch.setattr(far, "caller_refusal", change)
    assert far.load(far.admit(verified, context, payloads)) == [len, len]
    assert bea.policy.revision == 4
