"""Hold a pickle between parsing and building: parsed once, judged by profiles, then built.

The one rule: each step takes the result of the step before, so exactly what is judged is built, and
no pickle is parsed again to be loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from safeser.errors import PayloadError, PolicyDenied
from safeser.gate.values import Limits
from safeser.pickles.advice import MAX_READ, deny
from safeser.pickles.budget import Budget, over
from safeser.pickles.building.build import Builder
from safeser.pickles.judge import Use, judge
from safeser.pickles.nodes import Program
from safeser.pickles.profiles import Profile
from safeser.pickles.reading.machine import read
from safeser.pickles.shape import Shape, check_shape
from safeser.pickles.trees.reading import read_tree

__all__ = ["Judged", "Parsed", "parse", "parse_tree", "whole"]


@dataclass(slots=True, eq=False)
class Parsed:
    """One parsed pickle; nothing of it is judged, imported or built yet.

    :param persistent: the caller resolves persistent ids.
    """

    program: Program = field(repr=False)
    limits: Limits
    persistent: bool = False
    _shape: Shape | None = field(default=None, repr=False)

    def charge(self, budget: Budget) -> None:
        """Charge *budget* what parsing the pickle was charged, for another look at it."""
        budget.spend(refs=self.program.refs, calls=self.program.calls)

    def family(self, profile: Profile, denials: list[PolicyDenied] | None = None) -> str:
        """Return ``"pickle"`` if *profile* lists every use of a global, else ``"cloudpickle"``.

        :param denials: gets the refusal that names what makes it ``"cloudpickle"``.
        :raises PayloadError: the pickle nests too deep, or shares too much.
        """
        denial = self._denial(profile)
        if denial is None:
            self._checked_shape()
            return "pickle"
        if denials is not None:
            denials.append(denial)
        return "cloudpickle"

    def judged(self, profile: Profile, *, buffers: int) -> Judged:
        """Return what may be built.

        :param buffers: how many out-of-band buffers come with the pickle.
        :raises PolicyDenied: a global is used that *profile* does not list for that use.
        :raises PayloadError: the pickle nests too deep, shares too much or has too few buffers.
        """
        denial = self._denial(profile)
        if denial is not None:
            raise denial
        shape = self._checked_shape()
        if self.program.buffers > buffers:
            raise PayloadError(
                "the pickle wants more buffers than came with it",
                rule="pickle.buffers",
                fix="Pass the buffers that were written with it, in order.",
            )
        return Judged(self, profile, shape)

    def denied(self, profile: Profile) -> list[Use]:
        """Return the uses of globals that *profile* does not list."""
        return judge(self.program, profile, persistent=self.persistent, only_denied=True)

    def _denial(self, profile: Profile) -> PolicyDenied | None:
        uses = self.denied(profile)
        return deny(*uses[:MAX_READ], profile=profile) if uses else None

    def _checked_shape(self) -> Shape:
        if self._shape is None:
            self._shape = check_shape(self.program, self.limits)
        return self._shape


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A parsed pickle of which *profile* lists every use of a global; see :meth:`Parsed.judged`."""

    parsed: Parsed
    profile: Profile
    shape: Shape

    def build(
        self,
        buffers: Sequence[Any],
        budget: Budget,
        *,
        persistent_load: Callable[[Any], Any] | None = None,
        apart: Sequence[Any] = (),
    ) -> Any:
        """Return the object.

        :raises PayloadError: its values are unsound or over budget.
        """
        return Builder(
            self.parsed.program,
            self.profile,
            buffers=buffers,
            limits=self.parsed.limits,
            budget=budget,
            persistent_load=persistent_load,
            shape=self.shape,
            apart=apart,
        ).build()


def parse(
    data: bytes | bytearray | memoryview,
    *,
    buffers: int | None = None,
    limits: Limits,
    budget: Budget | None = None,
    persistent: bool = False,
) -> Parsed:
    """Parse the pickle *data*; import, judge and build nothing.

    :param buffers: how many out-of-band buffers come with it; None where that is not known yet.
    :param budget: charged; shared by all pickles of one message.
    :param persistent: the caller resolves persistent ids.
    :raises PayloadError: the pickle is malformed or over budget.
    """
    budget = Budget(limits) if budget is None else budget
    program = read(
        whole(data, limits), buffers=buffers, limits=limits, budget=budget, persistent=persistent
    )
    return Parsed(program, limits, persistent)


def parse_tree(
    data: bytes | bytearray | memoryview,
    *,
    buffers: int,
    apart: int = 0,
    limits: Limits,
    budget: Budget,
) -> Parsed:
    """Parse the reduced tree *data*; import, judge and build nothing.

    :param buffers: how many buffers come with it; it must use each of them.
    :param apart: how many values come with it, as above.
    :param budget: charged; shared by all values of one message.
    :raises PayloadError: the tree is malformed or over budget.
    """
    program = read_tree(data, buffers=buffers, apart=apart, limits=limits, budget=budget)
    return Parsed(program, limits)


def whole(data: bytes | bytearray | memoryview, limits: Limits) -> bytes:
    """Return *data* as bytes; a copy only where it isn't, and only within bounds."""
    if type(data) is bytes:
        return data
    try:
        view = memoryview(data)
    except TypeError:
        told = f"data is bytes or another buffer, not a {type(data).__name__}"
        raise TypeError(told + "; pass file.read()" * hasattr(data, "read")) from None
    if view.nbytes > limits.max_bytes:
        raise over("max-bytes", "the pickle is larger than allowed")
    return view.tobytes()
