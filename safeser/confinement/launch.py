"""Restrict this process by Landlock and seccomp, then become a console script such as ``dask``.

The one rule: everything is in force before anything of the command is imported. Landlock binds the
thread that asks for it and what it starts, so there is one thread until then; and nothing is
started afterwards, so that starting programs can be forbidden, too.

``safeser confined`` runs this in a new interpreter: ``python -P -m safeser.confinement.launch
'{"read": [...], ...}' dask worker ...``.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from typing import Any, NoReturn

from safeser.errors import ConfigError, MissingExtraError

__all__ = ["Rules", "command_line", "require_kernel", "restrict"]

#: Linux 6.12, the first that keeps signals and abstract sockets inside.
LEAST_ABI = 6

_UNABLE = 2

#: Beyond it, no shell or service manager hands a file to what it starts.
_MOST_FILES = 1 << 16

#: What reaches other processes, the kernel's own settings, or other namespaces; or what Landlock
#: does not see: modes, owners and attributes of files, shared memory beside files, and queues and
#: semaphores of other processes, which are found by their numbers without having been opened.
_REFUSED_CALLS = """
ptrace process_vm_readv process_vm_writev pidfd_getfd process_madvise kcmp ioprio_set
shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink
io_uring_setup io_uring_enter io_uring_register
keyctl add_key request_key bpf perf_event_open userfaultfd
unshare setns mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick
mount_setattr open_by_handle_at fanotify_init inotify_add_watch quotactl acct swapon swapoff
kexec_load kexec_file_load init_module finit_module delete_module reboot syslog
settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname
chmod fchmodat chown lchown fchownat setxattr lsetxattr removexattr lremovexattr
"""

#: Newer than libseccomp 2.5's names: quotactl_fd, fchmodat2, setxattrat, removexattrat,
#: open_tree_attr, file_setattr. The numbers are the same on all architectures.
_NEWER_CALLS = (443, 452, 463, 466, 467, 469)

#: Those whose first argument names a process, 0 being the own one.
_OF_A_PROCESS = (
    "prlimit64",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
)

#: Calls that make or change a file with a mode, and the place of that mode. A file that is
#: set-user-ID gives this account, unconfined, to each user of the machine that starts it.
_WITH_A_MODE = {"fchmod": 1, "creat": 1, "mknod": 1, "mknodat": 2}

#: The same where the mode counts only with a flag: the places of flags and of mode.
_THAT_MAY_MAKE = {"open": (1, 2), "openat": (2, 3)}

#: O_CREAT, and what O_TMPFILE has beside O_DIRECTORY.
_MAKING = (0o100, 0o20000000)

_SET_ID = (0o4000, 0o2000)

#: CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
_NAMESPACES = (0x80, *(1 << bit for bit in (17, 25, 26, 27, 28, 29, 30)))

#: What types into the terminal that the process was started from: TIOCSTI, TIOCLINUX.
_TERMINAL = (0x5412, 0x541C)

#: The kernel reads an int from the lower half of an argument, and a filter the whole of it.
_INT = 0xFFFFFFFF

_AF_UNIX, _AF_INET, _AF_INET6, _SOCK_STREAM, _TCP = 1, 2, 10, 1, 6
_MOST_FAMILIES = 64
_MSG_FASTOPEN, _TCP_ULP = 0x20000000, 31


@dataclass(frozen=True, slots=True)
class Rules:
    """What the process may do from here on.

    :param read: paths that it may read.
    :param write: folders in which it may read and write.
    :param devices: devices that it may read and write.
    :param execute: whether it may start programs.
    :param ports: TCP ports; None for any socket of IP.
    :param work: the folder for temporary files, in which it works once it is confined.
    """

    read: tuple[str, ...]
    write: tuple[str, ...]
    devices: tuple[str, ...]
    execute: bool
    ports: tuple[int, ...] | None
    work: str | None = None


def command_line(rules: Rules, command: Sequence[str]) -> list[str]:
    """Return what starts *command* under *rules*; ``-P``: never with modules of its folder."""
    said = json.dumps(asdict(rules))
    return [sys.executable, "-P", "-m", "safeser.confinement.launch", said, *command]


def require_kernel() -> None:
    """Raise :class:`ConfigError` unless this machine can confine a process by Landlock."""
    landlock, _ = _libraries()
    abi = landlock.abi_version()
    if abi < LEAST_ABI:
        found = f"has version {abi} of Landlock" if abi else "has no Landlock, or it is turned off"
        raise ConfigError(
            f"this kernel {found}; confinement needs version {LEAST_ABI}, of Linux 6.12",
            rule="confined.landlock",
            fix="Start the worker on a newer kernel, with landlock among its 'lsm='.",
        )


def _libraries() -> tuple[Any, Any]:
    try:
        import landlockpy  # noqa: PLC0415 - says what is missing
        import pyseccomp  # noqa: PLC0415
    except (ImportError, RuntimeError) as error:  # RuntimeError: there is no libseccomp
        raise MissingExtraError(
            f"confinement by Landlock needs a library that is not installed: {error}",
            fix="Install safeser with its extra landlock, and the system's libseccomp2.",
        ) from None
    return landlockpy, pyseccomp


def restrict(rules: Rules) -> None:
    """Confine this thread, and all that it starts, to *rules*, for good.

    :raises ConfigError: if there is another thread, or the kernel cannot confine it.
    """
    require_kernel()
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise ConfigError(
            f"{threads} threads run already, and Landlock binds only the one that asks for it",
            rule="confined.threads",
            fix="Start no threads with the interpreter, as a sitecustomize module may do.",
        )
    landlock, seccomp = _libraries()
    calls = _filter(seccomp, rules)
    _restrict_files(landlock, rules)
    calls.load()


def _restrict_files(landlock: Any, rules: Rules) -> None:
    files, net = landlock.AccessFS, landlock.AccessNet
    of_file = files.READ_FILE | files.WRITE_FILE | files.TRUNCATE | files.EXECUTE
    read = files.READ_FILE | files.READ_DIR | (files.EXECUTE if rules.execute else 0)
    change = files.MAKE_REG | files.MAKE_DIR | files.MAKE_SYM | files.REMOVE_FILE | files.REMOVE_DIR
    write = read | files.WRITE_FILE | files.TRUNCATE | files.REFER | change
    abi = landlock.abi_version()
    with landlock.Ruleset(
        handled_fs=landlock.fs_for_abi(abi),
        handled_net=landlock.net_for_abi(abi) if rules.ports is not None else net.NONE,
        scoped=landlock.Scope.SIGNAL | landlock.Scope.ABSTRACT_UNIX_SOCKET,
        best_effort=False,
    ) as ruleset:
        for paths, access in (
            (rules.read, read),
            (rules.write, write),
            (rules.devices, files.READ_FILE | files.WRITE_FILE),
        ):
            for path in paths:
                if os.path.exists(path):
                    ruleset.allow_path(path, access if os.path.isdir(path) else access & of_file)
        for port in rules.ports or ():
            ruleset.allow_port(port, net.BIND_TCP | net.CONNECT_TCP)
        ruleset.restrict()


def _filter(seccomp: Any, rules: Rules) -> Any:
    """Return a filter of what Landlock does not see; everything else passes."""
    calls, refuse = seccomp.SyscallFilter(seccomp.ALLOW), seccomp.ERRNO(errno.EPERM)
    equal, masked = seccomp.MASKED_EQ, seccomp.Arg
    programs = [] if rules.execute else ["execve", "execveat"]
    for name in (*_REFUSED_CALLS.split(), *_NEWER_CALLS, *programs):
        calls.add_rule(refuse, name)
    # Their arguments lie in memory, which no filter reads; the C library takes clone and openat.
    for name in ("clone3", "openat2"):
        calls.add_rule(seccomp.ERRNO(errno.ENOSYS), name)
    for flag in _NAMESPACES:
        calls.add_rule(refuse, "clone", masked(0, equal, flag, flag))
    for request in _TERMINAL:
        calls.add_rule(refuse, "ioctl", masked(1, equal, _INT, request))
    for name in _OF_A_PROCESS:
        calls.add_rule(refuse, name, masked(0, seccomp.NE, 0))
    for place in (0, 1):  # PRIO_PROCESS, and the own one
        calls.add_rule(refuse, "setpriority", masked(place, seccomp.NE, 0))
    _filter_modes(seccomp, calls)
    _filter_sockets(seccomp, calls, tcp_only=rules.ports is not None)
    return calls


def _filter_modes(seccomp: Any, calls: Any) -> None:
    """Let no file be made, or become, set-user-ID or set-group-ID."""
    refuse, equal, arg = seccomp.ERRNO(errno.EPERM), seccomp.MASKED_EQ, seccomp.Arg
    for bit in _SET_ID:
        for name, place in _WITH_A_MODE.items():
            calls.add_rule(refuse, name, arg(place, equal, bit, bit))
        for name, (flags, mode) in _THAT_MAY_MAKE.items():
            for flag in _MAKING:
                making = arg(flags, equal, flag, flag)
                calls.add_rule(refuse, name, making, arg(mode, equal, bit, bit))


def _filter_sockets(seccomp: Any, calls: Any, *, tcp_only: bool) -> None:
    """Leave sockets of IP alone, or of TCP alone: Landlock knows no other kind."""
    refuse, arg = seccomp.ERRNO(errno.EAFNOSUPPORT), seccomp.Arg
    for family in range(_MOST_FAMILIES):
        if family not in (_AF_INET, _AF_INET6):
            calls.add_rule(refuse, "socket", arg(0, seccomp.EQ, family))
    calls.add_rule(refuse, "socket", arg(0, seccomp.GE, _MOST_FAMILIES))
    for kind in range(16):  # the kernel keeps the type in the lowest four bits
        if kind != _SOCK_STREAM:  # a datagram socket of a pair sends to any that has a name
            calls.add_rule(refuse, "socketpair", arg(1, seccomp.MASKED_EQ, 0xF, kind))
    calls.add_rule(refuse, "socketpair", arg(0, seccomp.NE, _AF_UNIX))
    if not tcp_only:
        return
    for kind in range(16):
        if kind != _SOCK_STREAM:
            calls.add_rule(refuse, "socket", arg(1, seccomp.MASKED_EQ, 0xF, kind))
    for protocol in range(1, _TCP):
        calls.add_rule(refuse, "socket", arg(2, seccomp.EQ, protocol))
    calls.add_rule(refuse, "socket", arg(2, seccomp.GT, _TCP))
    # It puts another protocol in place of TCP, of which Landlock knows nothing.
    replacing = [
        arg(place, seccomp.MASKED_EQ, _INT, value) for place, value in ((1, _TCP), (2, _TCP_ULP))
    ]
    calls.add_rule(seccomp.ERRNO(errno.EPERM), "setsockopt", *replacing)
    # It connects, and kernels do not ask Landlock.
    for name, place in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        fast_open = arg(place, seccomp.MASKED_EQ, _MSG_FASTOPEN, _MSG_FASTOPEN)
        calls.add_rule(seccomp.ERRNO(errno.EPERM), name, fast_open)


def _close_inherited() -> None:
    """Close what this process was started with: no sandbox takes an open file away."""
    os.closerange(3, _MOST_FILES)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # not the terminal's input
    os.close(nothing)
    for number in (1, 2):
        _reopen_for_writing(number)


def _reopen_for_writing(number: int) -> None:
    """Open a terminal anew, for writing alone: shells hand over one that can be read, too."""
    if not os.isatty(number):
        return
    try:
        opened = os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NOCTTY)
    except OSError as error:
        raise ConfigError(
            f"its output goes to a terminal that it could read: {error.strerror}",
            rule="confined.terminal",
            fix="Send its output to a file or a pipe: 2>&1 | cat.",
        ) from None
    os.dup2(opened, number)
    os.close(opened)


def _start_witness() -> None:
    """Start a process that does nothing, outside: probes show that it cannot be reached.

    It ends with this process, by a pipe: no signal of a confined process reaches it.
    """
    reading, _ = os.pipe()
    if os.fork():
        os.close(reading)
        return  # the other end stays open as long as this process
    try:
        os.dup2(reading, 0)
        os.closerange(1, _MOST_FILES)
        os.read(0, 1)
    finally:
        os._exit(0)


def _enter_folder(folder: str) -> None:
    """Have temporary files, Dask's own among them, made in *folder*, and start there.

    Not before this process is confined: code that ran here earlier could have left modules,
    libraries or programs, which relative paths of the environment would find.
    """
    os.environ["TMPDIR"] = folder
    os.environ.setdefault("DASK_TEMPORARY_DIRECTORY", folder)
    os.chdir(folder)


def _run_script(command: str, arguments: Sequence[str]) -> NoReturn:
    """Run the console script *command* in this very process."""
    found = tuple(entry_points(group="console_scripts", name=command))
    if not found:
        raise ConfigError(
            f"no installed package has a command {command[:40]!a}",
            rule="confined.command",
            fix="Write 'dask worker ...' behind '--'; other programs would have to be started.",
        )
    sys.argv = [command, *arguments]
    raise SystemExit(found[0].load()())


def _main() -> NoReturn:
    said, command, *arguments = sys.argv[1:]
    try:
        rules = Rules(**json.loads(said))
        _close_inherited()
        _start_witness()
        restrict(rules)
        if rules.work is not None:
            _enter_folder(rules.work)
        _run_script(command, arguments)
    except ConfigError as error:
        sys.stderr.write(f"safeser: {error}\n")
        raise SystemExit(_UNABLE) from None


if __name__ == "__main__":
    _main()
