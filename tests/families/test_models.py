"""pydantic models: what is cached, frozen or not complete."""

import pytest
from pydantic import BaseModel, ValidationError

from safeser import families
from safeser.errors import ConfigError, PayloadError
from safeser.families import register_class
from tests.samples import models as own
from tests.samples.hostile.models import forged
from tests.samples.typed import GRANT, through
from tests.samples.values.models import WHEN


def test_what_is_cached_is_not_sent():
    made = own.Point(x=2)
    assert made.area == 1.0
    got = through(made)
    assert "area" not in vars(got)
    assert got.area == 1.0


def test_frozen_models_stay_frozen():
    got = through(own.Frozen(when=WHEN))
    with pytest.raises(ValidationError):
        got.when = WHEN


@pytest.mark.parametrize(
    ("cls", "options", "said"),
    [
        (own.Excluding, {}, "excludes a field"), (own.Slotted, {}, "slots"),
        (own.Abstract, {}, "is abstract"),
        (own.Unregistered, {"assigned": ["_x"]}, "no such private attribute"),
        (own.Generic_[str], {}, "name="), (own.Point, {}, "registered already"),
        (BaseModel, {}, "__setattr__"),
    ],
)  # fmt: skip
def test_what_cannot_be_registered(cls, options, said):
    with pytest.raises(ConfigError, match=said) as caught:
        register_class(cls, **options)
    assert caught.value.rule == "families.register"


def test_models_that_are_not_complete():
    class Later(BaseModel):
        x: "Unknown"  # noqa: F821 - on purpose

    with pytest.raises(ConfigError, match="not complete"):
        register_class(Later, name="mine:Later")


def test_what_a_validator_says_is_not_repeated():
    header, frames = forged(own.Bounded(low=1, high=2), {"low": 9})
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT)
    assert "secret" not in str(caught.value)
