#!/bin/sh
# run.sh DEB LOGS: boots the systemd of this machine in namespaces of its own, on an overlay of its files, with nothing
# but what the package needs, and runs inside.sh there. What it changes is in memory and goes with it. As root; where the
# kernel does not let namespaces be made or overlays mounted, it says so and leaves the boot out.
set -eu
deb=$(readlink -f "$1")
logs=$2
inside=$(dirname "$(readlink -f "$0")")/inside.sh
mkdir -p "$logs"
logs=$(readlink -f "$logs")

# Within the namespaces: mounts the tree at $1/root, with $2 at /package-test, and becomes PID 1 of it.
boot='
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=0755 tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --rbind /sys sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount --rbind /dev dev
mount -t tmpfs -o mode=0755 tmpfs run
mount -t tmpfs tmpfs tmp
mkdir package-test .outside
mount --bind "$2" package-test
[ "${3-}" != try ] || exit 0
: >etc/fstab
rm -f var/lib/dpkg/lock* usr/sbin/policy-rc.d var/lib/man-db/auto-update
cat >etc/systemd/system/package-test.service <<UNIT
[Unit]
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
ExecStart=/bin/sh /package-test/inside.sh
Environment=PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
StandardOutput=append:/package-test/inside.log
StandardError=append:/package-test/inside.log
TimeoutStartSec=100
UNIT
printf "[Unit]\nRequires=basic.target package-test.service\nAfter=basic.target\n" >etc/systemd/system/package-test.target
pivot_root . .outside
umount -l /.outside
export container=package-test
exec /lib/systemd/systemd --system --unit=package-test.target --log-target=journal --show-status=no </dev/null >/dev/null 2>&1
'

scratch=$(mktemp -d)
trap 'rmdir "$scratch"' EXIT
in_namespaces() {
    timeout -k 5 150 unshare --mount --pid --fork --kill-child --uts --ipc --cgroup --net sh -c "$boot" boot "$scratch" "$@"
}

cp "$inside" "$logs/inside.sh"
cp "$deb" "$logs/blueprintd.deb"
rm -f "$logs/inside.log" "$logs/passed"
if ! [ -x /lib/systemd/systemd ] || ! in_namespaces "$logs" try 2>"$logs/try.log"; then
    echo "check-package: systemd cannot be booted here ($(tail -n 1 "$logs/try.log")): the package is not installed"
    exit 0
fi
in_namespaces "$logs" || true
if ! [ -e "$logs/passed" ]; then
    cat "$logs/inside.log"
    echo "check-package: failed" >&2
    exit 1
fi
echo "check-package: $(cat "$logs/passed") promises kept under systemd $(systemctl --version | sed -n '1s/systemd \([0-9]*\).*/\1/p')"
