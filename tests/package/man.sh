#!/bin/sh
# man.sh: the manual pages: well-formed to groff and to mandoc, with every option and command that --help has, and no
# option that it has not. BUILD is the build directory.
set -eu
build=${BUILD:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "check-man: $*" >&2
    exit 1
}

# What is complained of in a page; "-W warning" of mandoc leaves out style, which is the house's own.
complaints() {
    groff -Tutf8 -ww -mandoc -z "$1" 2>&1
    mandoc -Tlint -W warning "$1" 2>&1 || true
}
# The options a page has: those that begin an entry of a list or stand in a synopsis, as the page is written.
page_options() { grep -o 'Fl -[a-z][a-z-]*' "$1" | sed 's/Fl -/--/' | LC_ALL=C sort -u; }
help_options() { grep -oh -- '--[a-z][a-z-]*' "$@" | LC_ALL=C sort -u; }
same() { diff -u "$1" "$2" || fail "$3"; }

printf '.Dd January 1, 2026\n.Dt X 1\n.Os\n.Sh NAME\n.Nm x\n.Nd y\n.Bl -tag -width Ds\n.It Fl -a\n' >"$work/wrong.1"
[ -n "$(complaints "$work/wrong.1")" ] || fail "a page with an open list passed"
for page in docs/man/blueprint.1 docs/man/blueprintd.8; do
    found=$(complaints "$page")
    [ -z "$found" ] || fail "$page:
$found"
done

"$build/blueprintd" --help >"$work/daemon.help"
page_options docs/man/blueprintd.8 >"$work/page"
help_options "$work/daemon.help" >"$work/help"
same "$work/help" "$work/page" "blueprintd.8 and blueprintd --help have other options"
# Each has an entry that says what it is for, not only its place in the synopsis.
while read -r option; do
    grep -q "^\.It .*Fl ${option#-}\( \|$\)" docs/man/blueprintd.8 || fail "blueprintd.8 does not explain $option"
done <"$work/help"

"$build/blueprint" --help >"$work/client.help"
sed -n 's/^  \([a-z][a-z-]*\( [a-z][a-z-]*\)\{0,1\}\)\( .*\)\{0,1\}$/\1/p' "$work/client.help" >"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 13 ] || fail "blueprint --help lists no commands"
# An entry may be of several: ".It Ic admin pin Ar PLAN , Ic admin unpin Ar PLAN".
grep '^\.It Ic ' docs/man/blueprint.1 | grep -o 'Ic [a-z][a-z-]*\( [a-z][a-z-]*\)\{0,1\}' | sed 's/^Ic //' | LC_ALL=C sort >"$work/page"
LC_ALL=C sort "$work/commands" >"$work/help"
same "$work/help" "$work/page" "blueprint.1 and blueprint --help have other commands"
while read -r command; do
    # shellcheck disable=SC2086 # some commands are two words
    "$build/blueprint" $command --help | sed -n '1p' >"$work/usage"
    # The entry: its line, with what it takes.
    grep "^\.It .*Ic $command\( \|$\)" docs/man/blueprint.1 >"$work/entry"
    help_options "$work/usage" >"$work/help" || true
    page_options "$work/entry" >"$work/page" || true
    same "$work/help" "$work/page" "blueprint.1 and blueprint $command --help have other options"
done <"$work/commands"
for option in $(help_options "$work/client.help"); do
    grep -q "Fl $(printf %s "${option#-}")" docs/man/blueprint.1 || fail "blueprint.1 does not have $option"
done

# Every key of the configuration is in the table of the operator's page, and no other.
sed -n 's/^BP_CONFIG_KEY("\([a-z-]*\)".*/\1/p' daemon/config.def | LC_ALL=C sort >"$work/help"
sed -n '/^| key |/,/^$/s/^| \(`[a-z`, -]*\) |.*/\1/p' docs/operating.md | grep -o '[a-z][a-z-]*' | LC_ALL=C sort >"$work/page"
same "$work/help" "$work/page" "docs/operating.md has other keys than the configuration"
echo "check-man: $(wc -l <"$work/commands") commands and $(wc -l <"$work/help") keys are in the manual"
