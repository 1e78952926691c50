"""pydantic models: what is cached, frozen or not complete."""

import pytest
from pydantic import BaseModel

from safeser.errors import ConfigError
from safeser.families import register_class
from tests.samples import models as own


@pytest.mark.parametrize(
    ("cls", "options", "said"),
    [
        (own.Excluding, {}, "excludes a field"), (own.Slotted, {}, "slots"),
        (own.Abstract, {}, "is abstract"),
        (own.Unregistered, {"assigned": ["_x"]}, "no such private attribute"),
        (own.Generic_[str], {}, "name="), (BaseModel, {}, "__setattr__"),
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
