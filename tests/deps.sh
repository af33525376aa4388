#!/bin/sh
# deps.sh build|fuzz|long|package|ci|node|metrics: installs the Debian packages that are missing, and asks no network when
# none is.
set -eu

# Each row: a command that succeeds when the need is met, and the package that meets it.
rows_build='
command -v cc;gcc
command -v ar;binutils
test -e /usr/include/stdio.h;libc6-dev
command -v pkg-config;pkg-config
command -v curl;curl
command -v sqlite3;sqlite3
test -x /usr/bin/python3;python3
/usr/bin/python3 -c "import yaml";python3-yaml
pkg-config --exists jansson;libjansson-dev
pkg-config --exists nettle;nettle-dev
pkg-config --exists libmicrohttpd;libmicrohttpd-dev
pkg-config --exists gnutls;libgnutls28-dev
pkg-config --exists sqlite3;libsqlite3-dev
pkg-config --exists libzstd;libzstd-dev
pkg-config --exists inih;libinih-dev
pkg-config --exists libsystemd;libsystemd-dev
pkg-config --exists libcurl;libcurl4-gnutls-dev
pkg-config --exists yaml-0.1;libyaml-dev
pkg-config --exists check;check
command -v openssl;openssl
'
# The fuzzers want clang with its runtime; the long tests valgrind as well.
rows_fuzz='
command -v clang;clang
test -e "$(clang -print-runtime-dir 2>/dev/null)/libclang_rt.fuzzer-$(uname -m).a";libclang-rt-14-dev
'
rows_long='
command -v valgrind;valgrind
'
rows_ci='
test -x /usr/sbin/nginx;nginx-light
command -v clang-format-14;clang-format-14
command -v autoconf;autoconf
command -v git;git
command -v shellcheck;shellcheck
command -v mandoc;mandoc
command -v groff;groff
command -v systemd-analyze;systemd
test -e /usr/share/i18n/locales/de_DE;locales
'
# The Debian package: what builds it, what judges it, and the systemd that it is installed under.
rows_package='
command -v dpkg-buildpackage;dpkg-dev
command -v dh;debhelper
command -v lintian;lintian
test -x /lib/systemd/systemd;systemd
test -e /usr/bin/dbus-daemon;dbus
command -v unshare;util-linux
command -v ip;iproute2
command -v man;man-db
'
# The tests of the API against its description run on Node 18 or later; Debian 12 has 18.
rows_node='
node -e "process.exit(parseInt(process.version.slice(1)) < 18 ? 1 : 0)";nodejs
command -v npm;npm
test -e /etc/ssl/certs/ca-certificates.crt;ca-certificates
'

rows_metrics='
command -v promtool;prometheus
command -v curl;curl
test -x /usr/bin/python3;python3
'

missing_of() {
    printf '%s\n' "$1" | while IFS=';' read -r test package; do
        [ -n "$test" ] || continue
        sh -c "$test" >/dev/null 2>&1 || printf '%s ' "$package"
    done
}

case "${1-}" in
build) rows=$rows_build ;;
fuzz) rows=$rows_build$rows_fuzz ;;
long) rows=$rows_build$rows_fuzz$rows_long ;;
package) rows=$rows_build$rows_package ;;
ci) rows=$rows_build$rows_fuzz$rows_package$rows_ci ;;
node) rows=$rows_node ;;
metrics) rows=$rows_metrics ;;
*) echo "usage: deps.sh build|fuzz|long|package|ci|node|metrics" >&2; exit 2 ;;
esac

missing=$(missing_of "$rows")
[ -n "$missing" ] || exit 0
echo "deps: installing $missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# Tools are wanted here, not services: none is started that a package brings.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
# shellcheck disable=SC2086 # a list of packages
apt-get install -y -qq --no-install-recommends $missing >/dev/null
still=$(missing_of "$rows")
[ -z "$still" ] || { echo "deps: still missing after the installation: $still" >&2; exit 1; }
