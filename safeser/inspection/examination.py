"""Collect the findings about one file, and derive the verdict from them.

The one rule: each pickle is judged by the requested profiles and by the additions of its format.
Whatever stops the reading makes the whole file refused or unreadable; no part of it passes alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from safeser.errors import PayloadError, SafeserError
from safeser.gate.values import Limits
from safeser.inspection.lists import judged_by, with_bases
from safeser.inspection.report import Global, Part, Report, Verdict
from safeser.inspection.source import Source
from safeser.pickles.advice import MAX_READ, deny, older
from safeser.pickles.budget import RISKS, Budget
from safeser.pickles.inspection import Inspection
from safeser.pickles.judge import Use, judge, problem_under
from safeser.pickles.names import shown
from safeser.pickles.nodes import Buffer, Program
from safeser.pickles.profiles import DATA_PROFILES, Profile
from safeser.pickles.shape import check_shape
from safeser.pickles.streams import Passage

__all__ = ["OWN_LOADER", "Examination"]

#: The only loader that checks the arguments of what it calls.
OWN_LOADER = "safeser.pickles.loads"
# Where another loader calls what is listed, unasked: only what makes values. Others list functions
# that are harmless by what safeser hands to them (getattr, type), and stock loaders hand over all.
_VALUES = ("data", "numpy", "pandas", "scipy", "sklearn")

#: A file for a person to look at has a few; a million small ones would take a million trees.
MAX_PICKLES = 1000
# Reading stopped where nothing more can be told: not that something is refused.
_UNREADABLE = frozenset(
    {
        "pickle.truncated",
        "pickle.python-2",
        "pickle.unresolved",
        "inspect.truncated",
        "inspect.unknown",
        "inspect.not-verified",
        "inspect.loading",
    }
)
# Limits of inspection itself, which nothing raises.
_OVER = frozenset({"inspect.too-large", "inspect.bomb"})
_DEFAULTS = Limits()
# An advised limit is so many times the one that was too small.
_MORE = 4


class Examination:
    """Collects the findings of readers; :meth:`report` returns the verdict."""

    def __init__(self, source: Source, profiles: tuple[str, ...], limits: Limits) -> None:
        self.source = source
        self.profiles = with_bases(profiles or DATA_PROFILES)
        self._default = not profiles
        self.formats: tuple[str, ...] = ()
        self.limits = limits
        self.budget = Budget(limits)
        self.kind = "unknown"
        self.title = "a file of an unknown kind"
        self.loader = ""
        self.compression = ""
        #: What safeser itself would load.
        self.pickles: list[bytes] = []
        self.parts: list[Part] = []
        self._globals: dict[tuple[str, str, str, str], Global] = {}
        self._denied: tuple[Use, Profile, str] | None = None
        self._refused: list[Use] = []
        self._pickles = 0

    def is_a(self, kind: str, title: str, *, loader: str, formats: tuple[str, ...] = ()) -> None:
        """Set the description of the file; *formats* add their lists to the profiles from now on.

        :param loader: what reads such a file; it is known to check what it is told, or it is not.
        """
        if self._default and loader and loader != OWN_LOADER:
            self.profiles = _VALUES
        self.kind, self.title, self.loader, self.formats = kind, title, loader, formats

    def add(self, name: str, what: str, offset: int, size: int) -> None:
        """Record a piece that is no pickle."""
        self.parts.append(Part(shown(name), what, offset, size))

    def add_pickle(self, name: str, passage: Passage, *, persistent: bool = False) -> None:
        """Judge a pickle and note it, with the arrays and pickles that stand inside it.

        :param persistent: the format says what persistent ids mean, and its reader checks them.
        """
        self._pickles += 1
        if self._pickles > MAX_PICKLES:
            raise PayloadError(
                f"the file holds more than {MAX_PICKLES} pickles", rule="inspect.too-large"
            )
        program, start = passage.program, passage.start
        profile = judged_by(self.profiles, self.formats)
        uses = judge(program, profile, persistent=persistent)
        verdicts = {profile.name: next((use.problem for use in uses if use.problem), "")}
        seen = Inspection(program, profile.name, tuple(uses), verdicts)
        what = f"pickle, protocol {program.protocol}"
        self.parts.append(Part(shown(name), what, start, passage.end - start, seen))
        allowed = self._allowed_by(program, uses, persistent=persistent)
        for use, by in zip(uses, allowed, strict=True):
            self._note(use, by, shown(name))
            if use.problem and len(self._refused) < MAX_READ:
                self._refused.append(use)
                self._denied = self._denied or (use, profile, shown(name))
        for array in passage.arrays:
            shape = "x".join(map(str, array.shape)) or "one value"
            what = f"array of {array.dtype}, {shape}" + (": see below" if array.objects else "")
            self.add(f"{name}: array", what, array.offset, array.size)
        for inner in passage.inner:
            self.add_pickle(f"{name}: objects of an array", inner)
        check_shape(program, self.limits)
        outside = len({node.number for node in program.nodes if isinstance(node, Buffer)})
        if outside:
            raise PayloadError(
                f"the pickle takes {outside} buffers that are not in the file",
                rule="inspect.buffers",
                fix="They were written apart from it, and their content is not in this file.",
            )

    def _allowed_by(self, program: Program, uses: Sequence[Use], *, persistent: bool) -> list[str]:
        """Return for each use what allows it: the format, or the first profile."""
        allowed = ["" if use.problem else "+".join(self.profiles) for use in uses]
        left = {at for at, use in enumerate(uses) if not use.problem}
        for name in (*self.formats, *self.profiles):
            if not left:
                break
            one = judged_by((), (name,)) if name in self.formats else judged_by((name,))
            # The same program has the same uses in the same order under every profile.
            for at, use in enumerate(judge(program, one, persistent=persistent)):
                if at in left and not use.problem:
                    allowed[at] = name
                    left.discard(at)
        return allowed

    def _note(self, use: Use, allowed_by: str, part: str) -> None:
        key = (use.name, use.role, use.problem or allowed_by, part)
        known = self._globals.get(key)
        offset, count = (use.offset, 1) if known is None else (known.offset, known.count + 1)
        self._globals[key] = Global(
            shown(use.name), use.role, allowed_by, use.problem, part, offset, count
        )

    # -- the verdict -----------------------------------------------------------------------------

    def report(self, failed: SafeserError | None = None) -> Report:
        """Return the report; *failed* is the error that stopped the reading, if any."""
        verdict, reason, rule, fix = self._verdict(failed)
        uses = sorted(self._globals.values(), key=lambda use: not use.problem)
        needs = {name for use in uses for name in use.allowed_by.split("+")}
        return Report(
            kind=self.kind,
            title=self.title,
            size=self.source.size,
            profiles=self.profiles,
            verdict=verdict,
            reason=reason,
            rule=rule,
            fix=fix,
            loader=self.loader,
            compression=self.compression,
            limits={
                name: getattr(self.limits, name)
                for name in Limits.__slots__
                if getattr(self.limits, name) != getattr(_DEFAULTS, name)
            },
            globals=uses,
            parts=self.parts,
            needs=tuple(name for name in DATA_PROFILES if name in needs),
        )

    def _verdict(self, failed: SafeserError | None) -> tuple[Verdict, str, str, str]:
        if self._denied is not None:
            use, profile, part = self._denied
            reason = f"{shown(use.name)} is {use.role} at byte {use.offset} of {part}"
            return (
                Verdict.REFUSED,
                f"{reason}: {use.problem}",
                "pickle.global",
                self._fix(use, profile),
            )
        if failed is not None:
            where = f" at {failed.where}" if failed.where else ""
            verdict, fix = Verdict.REFUSED, failed.fix
            if failed.limit:
                setting = f"{failed.limit}={getattr(self.limits, failed.limit) * _MORE}"
                risk = RISKS[failed.limit.replace("_", "-")]
                verdict = Verdict.OVER_LIMIT
                fix = (
                    f"Add --limit {setting}; pickles.loads takes limits=safeser.Limits({setting})."
                    f" {risk}"
                )
            elif failed.rule in _OVER:
                verdict = Verdict.OVER_LIMIT
            elif failed.rule in _UNREADABLE or failed.rule.startswith("envelope"):
                verdict = Verdict.UNREADABLE
            return verdict, f"{failed.message}{where}", failed.rule, fix
        return Verdict.ALLOWED, "", "", ""

    def _fix(self, use: Use, profile: Profile) -> str:
        for name in DATA_PROFILES:
            wider = judged_by(with_bases((*self.profiles, name)), self.formats)
            if not problem_under(use, wider):
                return (
                    f"Profile {name} allows it: add --profile {name}, if such values may come in."
                )
        if self.loader != OWN_LOADER:
            old = older(*(each.name for each in self._refused))
            return old or "No profile allows it, and the author of the file chose the name."
        return deny(*self._refused, profile=profile).fix
