"""Processes with the mounts, ids and root file system that a container or service gives them.

Each has a mount namespace of its own with an overlay over this machine's files, and all of one
:class:`Network` share a network namespace, in which each has an address. Needs root and the right
to make namespaces; :func:`possible` says whether this machine grants them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.mounts import Mount

__all__ = ["Network", "Place", "Pod", "possible"]

BIN = str(Path(sys.executable).parent)
CHECKOUT = Path(__file__).parents[1]

_SETPRIV = (
    "setpriv --reuid {user} --regid {group} {groups}"
    " --inh-caps=-all --ambient-caps=-all --bounding-set=-all --no-new-privs"
)


@functools.cache
def possible() -> bool:
    """Tell whether this machine lets the tests make namespaces, overlays and other users."""
    script = (
        "mount --make-rprivate / && mount -t tmpfs tmpfs /mnt && mkdir /mnt/u /mnt/w /mnt/r &&"
        " mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r &&"
        " ip link set lo up && chroot /mnt/r setpriv --reuid 1000 --regid 1000 --clear-groups true"
    )
    try:
        ended = subprocess.run(
            ["unshare", "-m", "-n", "sh", "-c", script],
            capture_output=True,
            timeout=30,
            check=False,
        )
    except OSError:
        return False
    return os.geteuid() == 0 and ended.returncode == 0


@dataclass(frozen=True)
class Place:
    """A folder or file that is mounted: what lies at *source* here is seen at *path* there."""

    path: str
    source: Path
    read_only: bool = False

    @classmethod
    def secret(cls, path: str, source: Path, files: Mapping[str, bytes], mode: int, group: int):
        """A secret of Kubernetes, or a config map: root's, in a read-only memory file system."""
        mount = Mount(source, files, mode=mode)
        for each in (mount.path, *mount.path.rglob("*")):
            os.chown(each, 0, group, follow_symlinks=False)
        return cls(path, source, read_only=True)

    @classmethod
    def empty(cls, path: str, source: Path, group: int):
        """An empty volume of Kubernetes under ``fsGroup``."""
        if not source.exists():
            source.mkdir()
            os.chown(source, 0, group)
            source.chmod(0o2777)
        return cls(path, source)


@dataclass
class Pod:
    """One process and what it sees.

    :ivar before: commands that run to their end first, each with the places that it sees.
    """

    name: str
    user: int
    group: int
    command: Sequence[str]
    environment: Mapping[str, str]
    places: Sequence[Place]
    groups: Sequence[int] = ()
    folder: str = "/"
    hosts: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = True
    before: Sequence[tuple[Sequence[str], Sequence[Place]]] = ()


class Network:
    """A network namespace with one loopback device, and the processes that run in it."""

    def __init__(self, path: Path, addresses: Sequence[str]) -> None:
        self.path = path
        added = " && ".join(f"ip addr add {each}/32 dev lo" for each in addresses)
        script = f"ip link set lo up && {added} && echo ready && exec sleep 600"
        self._holder = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", script], stdout=subprocess.PIPE, text=True
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"
        self._holder.stdout.close()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, pod: Pod) -> subprocess.Popen[bytes]:
        """Start a process whose output goes to its log."""
        for number, (command, places) in enumerate(pod.before):
            first = replace(
                pod,
                name=f"{pod.name}-{number}",
                command=command,
                places=places,
                folder="/",
                before=(),
            )
            code, said = self.run(first)
            assert code == 0, said
        with self._log(pod.name).open("wb") as log:
            process = subprocess.Popen(
                self._command(pod), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={"PATH": os.environ["PATH"]}, start_new_session=True,
            )  # fmt: skip
        self._running[pod.name] = process
        return process

    def run(self, pod: Pod, timeout: float = 90) -> tuple[int, str]:
        """Run a process to its end; return its exit code and its log."""
        process = self.start(pod)
        try:
            return process.wait(timeout), self.log(pod.name)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended in time:\n{self.logs()}") from None

    def inside(self, pod: Pod, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command beside the process of *pod*, as a probe does."""
        target = str(self._running[pod.name].pid)
        namespaces = ["nsenter", "--target", target, "--net", "--mount", "--root", "--wdns=/"]
        environment = [f"{name}={value}" for name, value in _environment(pod).items()]
        return subprocess.run(
            [*namespaces, "env", "-i", *environment, *_setpriv(pod), *command],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def log(self, name: str) -> str:
        return self._log(name).read_text(errors="replace")

    def logs(self) -> str:
        return "\n".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in self._running)

    def close(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in reversed(list(self._running.values())):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(15)
        self._holder.kill()
        self._holder.wait()

    def _log(self, name: str) -> Path:
        return self.path / f"{name}.log"

    def _command(self, pod: Pod) -> list[str]:
        script = "\n".join(("set -e", *_script(pod, self.path / f"{pod.name}-files")))
        return [
            "nsenter",
            "--target",
            str(self._holder.pid),
            "--net",
            "unshare",
            "-m",
            "sh",
            "-c",
            script,
        ]


def _environment(pod: Pod) -> dict[str, str]:
    return {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": "/nonexistent", **pod.environment}


def _setpriv(pod: Pod) -> list[str]:
    groups = ",".join(map(str, pod.groups))
    given = f"--groups {groups}" if groups else "--clear-groups"
    return shlex.split(_SETPRIV.format(user=pod.user, group=pod.group, groups=given))


def _script(pod: Pod, layer: Path) -> Iterator[str]:
    layer.mkdir()
    q = shlex.quote
    top, root = q(str(layer)), q(str(layer / "root"))
    yield "mount --make-rprivate /"
    yield f"mount -t tmpfs tmpfs {top} && mkdir {top}/upper {top}/work {root}"
    yield f"mount -t overlay overlay -o lowerdir=/,upperdir={top}/upper,workdir={top}/work {root}"
    # The interpreter may lie where only root may look; so does the image that stands for it.
    for each in sorted({CHECKOUT, Path(sys.executable).resolve()}):
        for folder in [each, *each.parents][:-1]:
            if folder.is_dir():
                yield f"chmod o+x {root}{q(str(folder))}"
    for name, address in pod.hosts.items():
        yield f"echo {q(address)} {q(name)} >> {root}/etc/hosts"
    image = f"{root}{q(str(CHECKOUT))}"
    yield f"mkdir {top}/image && mount --bind {image} {top}/image"
    for number, place in enumerate(pod.places):
        # Bound from outside first, where what covers a parent does not hide it.
        at, kept = f"{root}{q(place.path)}", f"{top}/place-{number}"
        make = "mkdir -p" if place.source.is_dir() else "touch"
        yield f"{make} {kept} && mount --bind {q(str(place.source))} {kept}"
        parent = q(os.path.dirname(place.path))
        yield f"mkdir -p {root}{parent} && {make} {at} && mount --bind {kept} {at}"
        if place.read_only:
            yield f"mount -o remount,bind,ro {at}"
    # A pod's own /tmp hides a checkout that lies there.
    yield f"mkdir -p {image} && mount --bind {top}/image {image}"
    yield f"mount --rbind /proc {root}/proc && mount --rbind /dev {root}/dev"
    if pod.read_only:
        yield f"mount -o remount,bind,ro {root}"
    assignments = " ".join(q(f"{name}={value}") for name, value in _environment(pod).items())
    process = " ".join(map(q, (*_setpriv(pod), *pod.command)))
    inner = f"cd {q(pod.folder)} && exec env -i {assignments} {process}"
    yield f"exec chroot {root} sh -c {q(inner)}"
