"""Run all probes in order.

The one rule: all of them run, so that one start names everything that has to be corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from safeser.confinement import files, kernel, processes, sockets
from safeser.confinement.outcome import Outcome
from safeser.confinement.own import Own
from safeser.policy.confined import Confined

__all__ = ["PROBES", "probe"]

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
