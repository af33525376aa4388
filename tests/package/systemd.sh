#!/bin/sh
# systemd.sh: the units as `make install` puts them: valid, confined, and with the group and the directory they name.
# BUILD is the build directory.
set -eu
build=${BUILD:-build}
root=$(readlink -f "$build")/systemd-root
rm -rf "$root"
mkdir -p "$root/etc"
make --no-print-directory -s BUILD="$build" DESTDIR="$root" prefix=/usr install >"$build/systemd-install.log"
units=$root/usr/lib/systemd/system

fail() {
    echo "check-systemd: $*" >&2
    exit 1
}

# Exposure is told as a whole number of tenths. The rule is tried on a unit that is not confined: it must refuse it.
exposed() { systemd-analyze security --offline=true --threshold=15 --no-pager "$1"; }
exposed "$units/blueprintd.service" >"$build/systemd-security.log" ||
    { cat "$build/systemd-security.log"; fail "the service is exposed more than it should be"; }
mkdir "$root/negative"
sed '/^SystemCallFilter=/d; /^DynamicUser=/d; /^User=/d' "$units/blueprintd.service" >"$root/negative/blueprintd.service"
! exposed "$root/negative/blueprintd.service" >/dev/null || fail "a service that is not confined passed"

# With the program where it was installed for this.
mkdir "$root/verified"
cp "$units"/* "$root/verified"
sed -i "s|^ExecStart=/usr/bin/|ExecStart=$root/usr/bin/|" "$root/verified/blueprintd.service"
verify() { systemd-analyze verify --man=no --recursive-errors=no "$@" 2>&1; }
complaints=$(verify "$root"/verified/*) || fail "$complaints"
[ -z "$complaints" ] || fail "$complaints"
sed 's/^WatchdogSec=/WatchdogSecs=/' "$root/verified/blueprintd.service" >"$root/negative/blueprintd.service"
[ -n "$(verify "$root/negative/blueprintd.service" || true)" ] || fail "a unit with a word that is none passed"

# Made twice: the second time nothing is to be done.
for _ in 1 2; do
    systemd-sysusers --root="$root" "$root/usr/lib/sysusers.d/blueprintd.conf" 2>"$build/systemd-sysusers.log" ||
        fail "$(cat "$build/systemd-sysusers.log")"
    systemd-tmpfiles --root="$root" --create "$root/usr/lib/tmpfiles.d/blueprintd.conf"
done
grep -q '^blueprint:' "$root/etc/group" || fail "there is no group blueprint"
! grep -qs '^blueprint' "$root/etc/passwd" || fail "there is a user, which systemd is to make while the daemon runs"
[ "$(stat -c %a "$root/run/blueprintd")" = 755 ] || fail "there is no /run/blueprintd"
grep -q "^SocketGroup=blueprint$" "$units/blueprintd.socket" || fail "the socket is of another group"

# The configuration that is installed is one.
"$root/usr/bin/blueprintd" --config "$root/etc/blueprintd.ini" --check-config
# What is edited stays; what was installed can be taken back.
echo 'workers = 1' >>"$root/etc/blueprintd.ini"
make --no-print-directory -s BUILD="$build" DESTDIR="$root" prefix=/usr install uninstall >>"$build/systemd-install.log"
grep -q '^workers = 1' "$root/etc/blueprintd.ini" || fail "an edited configuration was written over"
left=$(find "$root/usr" -type f)
[ -z "$left" ] || fail "left after make uninstall: $left"
echo "check-systemd: $(sed -n 's/.*Overall exposure level for \([^ ]*\): \([0-9.]*\).*/\1 is exposed \2 of 10/p' "$build/systemd-security.log")"
