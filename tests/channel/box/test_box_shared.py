"""Boxes of a shared secret: one principal, no code, no roster, a direction where one is named."""

from __future__ import annotations

import os

import numpy as np
import pytest

from safeser.channel.box import Box
from safeser.errors import ConfigError, EnvelopeError, PayloadError, PolicyDenied
from safeser.identity.secret import ENVIRONMENT, Secret
from safeser.policy import Policy
from safeser.policy.ready import locate, read_file
from tests.channel.boxes import Clock, events, shared
from tests.conftest import Witness
from tests.refusal import refusal


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def secret():
    return Secret.generate()


@pytest.fixture
def box(clock, secret):
    with shared(clock, secret) as made:
        yield made


def test_all_who_have_the_secret_open_what_one_of_them_seals(clock, secret, box):
    data = box.seal({"a": np.arange(3)}, about="user:1", ttl=None)
    with shared(clock, secret) as other:
        opened = other.open(data, about="user:1")
        assert (opened.sender, opened.value["a"].tolist()) == ("shared", [0, 1, 2])
        assert opened.to == "shared"
        (event,) = events(other)
        assert (event["sender"], event["recipient"]) == ("shared", "shared")
        with refusal(EnvelopeError, "box.about"):
            other.open(data, about="user:2")


def test_another_secret_opens_nothing(clock, box):
    with shared(clock, Secret.generate()) as other, refusal(EnvelopeError, "box.secret"):
        other.open(box.seal(5, about="x", ttl=60), about="x")


def test_the_id_of_a_secret_opens_nothing(clock, secret, box):
    """The id is public; a message under it that another secret made does not authenticate."""
    other = Secret.generate()
    with shared(clock, other) as stranger:
        data = stranger.seal(5, about="x", ttl=60).replace(other.id, secret.id)
    with refusal(EnvelopeError, "envelope.mac"):
        box.open(data, about="x")


def test_a_secret_is_replaced_in_two_steps(clock):
    old, new = Secret.generate(), Secret.generate()
    before, during, after = (shared(clock, *each) for each in ([old], [new, old], [new]))
    data = before.seal(5, about="x", ttl=60)
    assert during.open(data, about="x").value == 5
    assert after.open(during.seal(6, about="x", ttl=60), about="x").value == 6
    with refusal(EnvelopeError, "box.secret"):
        after.open(data, about="x")


# --- directions -----------------------------------------------------------------------------------

THERE, BACK = "client -> server: tasks", "server -> client: tasks"


def test_what_goes_there_does_not_come_back(clock, secret, box):
    with shared(clock, secret) as server:
        data = box.seal(5, about=THERE, ttl=60)
        opened = server.open(data, about=THERE)
        assert (opened.value, opened.sender, opened.to) == (5, "client", "server")
        assert box.open(server.seal(6, about=BACK, ttl=60), about=BACK).value == 6
        # Reflected to the box that sealed it, as an answer or as it is.
        with refusal(EnvelopeError, "envelope.mac"):
            box.open(data, about=BACK)
        with refusal(EnvelopeError, "box.reflected"):
            box.open(data, about=THERE)
        # An end that opens in a direction does not seal in it.
        with refusal(EnvelopeError, "box.reflected"):
            server.seal(7, about=THERE, ttl=60)


def test_a_box_forgets_no_direction(clock, secret, box):
    data = box.seal(5, about=THERE, ttl=60)
    for number in range(1023):
        box.seal(5, about=f"client -> server-{number}", ttl=60)
    with refusal(EnvelopeError, "box.direction"):
        box.seal(5, about="client -> another", ttl=60)
    with refusal(EnvelopeError, "box.reflected"):
        box.open(data, about=THERE)


def test_bytes_that_do_not_verify_take_no_direction(clock, secret, box):
    with shared(clock, secret) as other:
        data = other.seal(5, about="other -> box", ttl=60)
        with refusal(EnvelopeError, "envelope.mac"):
            box.open(data, about=THERE)
    assert box.seal(5, about=THERE, ttl=60)


NO_DIRECTIONS = [
    "client -> client",
    "a->b",
    "a->b: q",
    "a -> b:q",
    "a -> b q",
    "a  -> b",
    " a -> b",
    "a b -> c",
    "from a -> b: q",
    "q: a -> b",
    "a -> " + "b" * 65,
    "-> b",
    "a ->",
    "a -> b\n",
]


@pytest.mark.parametrize("about", NO_DIRECTIONS, ids=lambda each: repr(each)[:16])
def test_what_looks_like_a_direction_and_is_none_is_refused(clock, secret, box, about):
    """Taken for text like any other, it would let a message go back to the box that sealed it."""
    with refusal(ConfigError, "box.direction"):
        box.seal(5, about=about, ttl=60)
    with shared(clock, secret) as other, refusal(ConfigError, "box.direction"):
        other.open(box.seal(5, about="a -> b", ttl=60), about=about)


# --- what it may carry ----------------------------------------------------------------------------

GRANTS_CODE = """
safeser: 1
name: code
revision: 1
principals: {shared: {}}
contexts:
  - name: all
    sender: shared
    recipient: shared
    submission: code
    serializers: [dask, msgpack, pickle, cloudpickle]
    deserializers: [dask, msgpack, pickle, cloudpickle]
"""

SMALLER = """
safeser: 1
name: smaller
revision: 1
extends: shared
limits: {max_bytes: 64KiB}
"""


def test_no_policy_lets_code_in(secret):
    with refusal(ConfigError, "box.code"):
        Box.shared(secret, policy=Policy.parse(GRANTS_CODE), audit=Witness())
    observing = Policy.parse(GRANTS_CODE.replace("name: code", "name: code\nmode: observe"))
    with refusal(ConfigError, "box.code"):
        Box.shared(secret, policy=observing, audit=Witness())


def test_code_is_neither_sealed_nor_opened(box):
    with pytest.raises((PolicyDenied, PayloadError)):
        box.seal(lambda: 5, about="x", ttl=60)
    with pytest.raises((PolicyDenied, PayloadError)):
        box.seal(os.system, about="x", ttl=60)


def test_a_policy_that_is_for_others_is_refused(secret):
    with refusal(ConfigError, "box.policy"):
        Box.shared(secret, policy="default", audit=Witness())


def test_the_ready_policy_can_be_tightened(clock, secret, box):
    data = box.seal([1, np.ones(3)], about="x", ttl=60)
    text = read_file(locate("shared")).decode().replace("[dask, msgpack, pickle]", "[msgpack]")
    copied = Policy.parse(text.replace("    pickle: {profile: [data, numpy]}\n", ""))
    with shared(clock, secret, policy=copied) as tight, refusal(PolicyDenied, "context.family"):
        tight.open(data, about="x")
    with shared(clock, secret, policy=Policy.parse(SMALLER)) as small:
        assert small.open(data, about="x").value[0] == 1
        with refusal(EnvelopeError, "envelope.limits"):
            small.open(box.seal(b"x" * 200_000, about="x", ttl=60), about="x")


# --- the secret -----------------------------------------------------------------------------------

NO_SECRETS = {
    "text": "a long passphrase that somebody chose",  # taken for a path
    "bytes": bytes(range(32)),
    "three": [Secret.generate() for _ in range(3)],
    "none": [],
}


@pytest.mark.parametrize("name", NO_SECRETS)
def test_what_is_no_generated_secret_is_refused(name):
    with refusal(ConfigError, "config.secret") as caught:
        Box.shared(NO_SECRETS[name], audit=Witness())
    assert "keys secret" in str(caught.value)


def test_the_environment_names_the_files(tmp_path, monkeypatch, clock):
    paths = [tmp_path / "new", tmp_path / "old"]
    for path in paths:
        Secret.generate().save(path)
    monkeypatch.setenv(ENVIRONMENT, os.pathsep.join(map(str, paths)))
    box = Box.shared(audit=Witness())
    old = Box.shared(paths[1], audit=Witness())
    assert box.open(old.seal(5, about="x", ttl=60), about="x").value == 5
    monkeypatch.delenv(ENVIRONMENT)
    with refusal(ConfigError, "config.secret"):
        Box.shared(audit=Witness())


# --- the log --------------------------------------------------------------------------------------


def test_a_box_without_a_log_is_refused_where_the_policy_wants_one(secret):
    with refusal(ConfigError, "box.audit"):
        Box.shared(secret)


def test_a_box_that_may_have_no_log_says_so_when_it_starts(secret, caplog):
    text = SMALLER.replace("revision: 1", "revision: 1\naudit: none")
    box = Box.shared(secret, policy=Policy.parse(text))
    assert "this box has no log" in caplog.text
    assert box.open(box.seal(5, about="x", ttl=60), about="x").value == 5


# --- arguments ------------------------------------------------------------------------------------

ARGUMENTS = [
    ({"about": ""}, "box.about-text"),
    ({"about": "x" * 1_025}, "box.about-text"),
    ({"about": "\udc80"}, "box.about-text"),
    ({"about": None}, "box.about-text"),
    ({"about": b"x"}, "box.about-text"),
    ({"ttl": 0}, "box.seconds"),
    ({"ttl": -1}, "box.seconds"),
    ({"ttl": float("nan")}, "box.seconds"),
    ({"ttl": float("inf")}, "box.seconds"),
    ({"ttl": True}, "box.seconds"),
    ({"ttl": "60"}, "box.seconds"),
    ({"to": "shared"}, "box.recipient"),
    ({"signed": True}, "box.recipient"),
]


@pytest.mark.parametrize(("argument", "rule"), ARGUMENTS, ids=lambda each: str(each)[:30])
def test_arguments_that_mean_nothing(box, argument, rule):
    with refusal(ConfigError, rule):
        box.seal(5, **{"about": "x", "ttl": 60, **argument})
    if "about" in argument:
        with refusal(ConfigError, rule):
            box.open(box.seal(5, about="x", ttl=60), **argument)
