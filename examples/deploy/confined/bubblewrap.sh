#!/bin/sh
# Start a confined worker in namespaces of its own: bubblewrap.sh dask worker ADDRESS --no-nanny ...
# docs/how-to/confined-workers.md says which policy goes with it. Settings are DASK_SAFESER__..., and:
#   SAFESER_READ   what the process sees and cannot change, with spaces between: Python's folder,
#                  roster and policy, its key, 'read' of the policy
#   SAFESER_WRITE  what it sees and may change: its log, 'write' of the policy
set -eu
set -f
cd /
safeser=${SAFESER_COMMAND:-/opt/safeser/bin/safeser}
places=
for each in $SAFESER_READ; do places="$places --ro-bind $each $each"; done
for each in $SAFESER_WRITE; do places="$places --bind $each $each"; done
# The network stays: the worker speaks to its cluster. 'safeser confined' limits the ports, and a
# firewall the hosts. The root file system is bubblewrap's own and empty but for what is bound.
exec bwrap \
    --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup-try \
    --die-with-parent --new-session --cap-drop ALL \
    --proc /proc --dev /dev \
    --ro-bind /usr /usr \
    --symlink usr/bin /bin --symlink usr/sbin /sbin \
    --symlink usr/lib /lib --symlink usr/lib64 /lib64 \
    --ro-bind-try /etc/ld.so.cache /etc/ld.so.cache \
    --ro-bind-try /etc/localtime /etc/localtime \
    --ro-bind-try /etc/hosts /etc/hosts \
    --ro-bind-try /etc/nsswitch.conf /etc/nsswitch.conf \
    $places \
    --remount-ro / \
    -- "$safeser" confined -- "$@"
