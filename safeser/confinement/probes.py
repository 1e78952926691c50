"""Run all probes in order, and raise one error for those that show a gap.

The one rule: all of them run, so that one start names everything that has to be corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from safeser.confinement import files, kernel, processes, sockets
from safeser.confinement.outcome import Outcome
from safeser.confinement.own import Own
from safeser.errors import ConfigError
from safeser.policy.confined import Confined

__all__ = ["PROBES", "Unconfined", "probe"]

#: Each probe by the name under which records and reports have it.
PROBES: Mapping[str, Callable[[Confined, Own], Outcome]] = MappingProxyType(
    {
        "privileges": kernel.privileges,
        "capabilities": kernel.capabilities,
        "seccomp": kernel.filtered,
        "keys": files.keys,
        "homes": files.homes,
        "read": files.reading,
        "write": files.writing,
        "execute": kernel.executing,
        "connect": sockets.connecting,
        "sockets": sockets.kinds,
        "trace": processes.tracing,
        "signal": processes.signalling,
        "share": processes.sharing,
    }
)


def probe(confined: Confined, own: Own) -> list[Outcome]:
    """Try everything that *confined* forbids, harmlessly, and return the outcomes."""
    return [each(confined, own) for each in PROBES.values()]


class Unconfined(ConfigError):
    """A process is less confined than its policy demands; each probe that shows it has an error.

    :ivar each: these errors, in the order of the probes.
    """

    default_rule = "confined"
    each: tuple[ConfigError, ...] = ()

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Unconfined | None:
        """Return what keeps a process with *outcomes* from starting, or None."""
        found = tuple(
            ConfigError(
                f"this process is not confined as its policy demands: {each.found}",
                rule=f"confined.{each.probe}",
                fix=each.fix,
            )
            for each in outcomes
            if not each.is_met
        )
        if not found:
            return None
        first = found[0]
        error = cls(first.message, rule=first.rule, fix=first.fix)
        error.each = found
        return error
