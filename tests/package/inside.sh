#!/bin/sh
# Run as a unit of the system that run.sh boots: installs the package, uses it as its users would, breaks it, removes it.
set -eu
cd /package-test
kept=0
socket=unix:/run/blueprintd/blueprintd.sock
database=/var/lib/blueprintd/blueprint.db

# promise TEXT COMMAND...: it succeeds, at once or soon.
promise() {
    text=$1
    shift
    tries=0
    until "$@" >promise.log 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -gt 150 ]; then
            cat promise.log
            echo "NOT KEPT: $text"
            systemctl status --no-pager -n 0 blueprintd.service blueprintd.socket || true
            journalctl --no-pager -n 40 -t systemd -t blueprintd || true
            exit 1
        fi
        sleep 0.1
    done
    kept=$((kept + 1))
    echo "kept: $text"
}

# Of the unit, as systemctl shows it.
property() { systemctl show --value -p "$1" blueprintd.service; }
is() { [ "$(property "$1")" = "$2" ]; }
not() { ! "$@"; }
process() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$(property MainPID)/status"; }
active() { systemctl is-active --quiet "$1"; }
user_is_dynamic() {
    uid=$(process Uid | cut -f 1)
    [ "$uid" -ge 61184 ] && [ "$uid" -le 65519 ] && ! grep -q '^blueprintd:' /etc/passwd
}
confined() { [ "$(process Seccomp)" = 2 ] && [ "$(process NoNewPrivs)" = 1 ] && [ "$(process CapEff)" = 0000000000000000 ]; }
groups_have() { process Groups | grep -qw "$(getent group "$1" | cut -d : -f 3)"; }
cannot_write() { nsenter -t "$(property MainPID)" -m sh -c '! touch /usr/x /etc/x /var/lib/x 2>/dev/null'; }
# A client who is nobody, with further groups or none.
client() {
    groups=$1
    shift
    setpriv --reuid=nobody --regid=nogroup "$groups" -- blueprint "$@"
}
has_plans() { [ "$(blueprint --server "$socket" --json list | grep -o '"id":' | wc -l)" -eq "$1" ]; }
restarted() { [ "$(property NRestarts)" -gt "$1" ] && active blueprintd.service; }
says() { property StatusText | grep -q "$1"; }
# override LINE...: in a drop-in of the service, beside those there are; restarts it.
override() {
    mkdir -p /run/systemd/system/blueprintd.service.d
    printf '[Service]\n' >"/run/systemd/system/blueprintd.service.d/${1%%=*}.conf"
    printf '%s\n' "$@" >>"/run/systemd/system/blueprintd.service.d/${1%%=*}.conf"
    systemctl daemon-reload
    systemctl restart blueprintd.service
}
logged() { journalctl --no-pager -u blueprintd.service | grep -q "$1"; }

dpkg -i blueprintd.deb
promise "the service and the socket run, the port's socket does not" \
    sh -c 'systemctl is-active --quiet blueprintd.service && systemctl is-active --quiet blueprintd.socket &&
           systemctl is-enabled --quiet blueprintd.service && systemctl is-enabled --quiet blueprintd.socket &&
           ! systemctl is-active --quiet blueprintd-tcp.socket && ! systemctl is-enabled --quiet blueprintd-tcp.socket'
promise "the daemon says how it goes" says '^Serving 127.0.0.1:7433: 0 plans in flight'
promise "its user is dynamic" user_is_dynamic
promise "the groups are there" sh -c "getent group blueprint && getent group blueprint-keys"
promise "it is confined: seccomp, no privileges, no capabilities" confined
promise "it can write to its state alone" cannot_write
promise "a member of the group may use the socket" client --groups=blueprint --server "$socket" list
promise "who is no member may not" not client --clear-groups --server "$socket" list
cat >request.json <<'REQUEST'
{"model": {"name": "llama-2-7b"},
 "workload": {"mode": "training", "sequence_length": 512, "micro_batch_size": 1, "global_batch_size": 1,
              "dtype": "bfloat16"},
 "strategy": {}}
REQUEST
promise "it plans" client --groups=blueprint --server "$socket" plan request.json
promise "the plan is there" has_plans 1
systemctl restart blueprintd.service
promise "and after a restart" has_plans 1
promise "it is of the group of its keys" groups_have blueprint-keys
promise "it takes a new configuration" systemctl reload blueprintd.service
promise "its database verifies" blueprintd --database "$database" --verify
promise "the manual pages are there" man -w blueprint blueprintd
promise "the shell completes its commands" bash -c 'COMP_LINE="blueprint pl" COMP_POINT=12
    . /usr/share/bash-completion/completions/blueprint; _blueprint; [ "${COMPREPLY[*]}" = plan ]'

# A daemon that hangs is killed and comes again.
override WatchdogSec=2
before=$(property NRestarts)
sleep 3
promise "a daemon that is well is left alone" is NRestarts "$before"
kill -STOP "$(property MainPID)"
promise "one that hangs is started again" restarted "$before"
promise "because of the watchdog" logged 'Watchdog timeout'
promise "and has its plans" has_plans 1
rm -r /run/systemd/system/blueprintd.service.d
systemctl daemon-reload

# Who is not on this machine's loopback is let in by a drop-in alone, wherever the daemon listens. The address is a second
# one of lo, and so not of the network that IPAddressAllow=localhost names.
ip address add 192.0.2.1/32 dev lo
override ExecStart= "ExecStart=/usr/bin/blueprintd --config /etc/blueprintd.ini \\
    --listen 192.0.2.1:7433 --listen-beyond-loopback-without-tokens-and-tls yes"
promise "it listens beyond loopback when told so" says '^Serving 192.0.2.1:7433'
if logged 'does not support BPF/cgroup firewalling'; then
    echo "not tried: this kernel has no firewall for units"
else
    promise "but the unit lets nobody in" not timeout 1 blueprint --server 192.0.2.1:7433 list
    override IPAddressAllow=192.0.2.0/24
    promise "until a drop-in does" timeout 1 blueprint --server 192.0.2.1:7433 list
fi
rm -r /run/systemd/system/blueprintd.service.d
systemctl daemon-reload

# Sockets start it.
systemctl stop blueprintd.service
promise "a connection to the socket starts it" has_plans 1
systemctl stop blueprintd.service
systemctl start blueprintd-tcp.socket
promise "so does one to the port" blueprint --server 127.0.0.1:7433 list
promise "with both sockets handed over" has_plans 1
promise "on the port that was handed over" says '^Serving 127.0.0.1:7433'
systemctl stop blueprintd-tcp.socket blueprintd.service blueprintd.socket

# What changes the database offline is run as the daemon's kind of user, and leaves it the daemon's.
promise "the schema is looked after offline" systemd-run --quiet --wait --pipe -p DynamicUser=yes -p User=blueprintd \
    -p StateDirectory=blueprintd blueprintd --database "$database" --migrate
systemctl start blueprintd.socket
promise "and the daemon has its plans" has_plans 1
systemctl stop blueprintd.socket blueprintd.service

# A configuration that is wrong is said to be, once.
printf '\nqueue = 0\n' >>/etc/blueprintd.ini
before=$(property NRestarts)
systemctl start blueprintd.service && exit 1
promise "a wrong configuration fails with status 2" is ExecMainStatus 2
promise "and is not tried again" is NRestarts "$before"
promise "saying what is wrong" logged 'queue: must be a number'
sed -i 's/^queue = 0/queue = 8/' /etc/blueprintd.ini
dpkg -i --force-confold blueprintd.deb
promise "an edited configuration survives an upgrade" grep -q '^queue = 8' /etc/blueprintd.ini
promise "and runs" has_plans 1

dpkg -L blueprintd | while read -r path; do [ -d "$path" ] || echo "$path"; done | grep -v '^/etc/' >files
dpkg -r blueprintd
promise "removed, nothing runs" sh -c '! systemctl is-active --quiet blueprintd.service && ! systemctl is-active --quiet blueprintd.socket'
promise "and no file of the package is left" sh -c 'while read -r path; do [ ! -e "$path" ] || { echo "$path"; exit 1; }; done <files'
promise "but the configuration and the database" sh -c "[ -e /etc/blueprintd.ini ] && [ -e '$database' ]"
dpkg -i --force-confold blueprintd.deb
promise "installed again, it has its plans" has_plans 1
dpkg -P blueprintd
promise "purged, nothing is left of either" sh -c '[ ! -e /etc/blueprintd.ini ] && [ ! -e /var/lib/private/blueprintd ] &&
    [ ! -e /var/lib/blueprintd ] && [ ! -e /run/blueprintd ] && ! getent group blueprint && ! getent group blueprint-keys'
promise "nor of the units" sh -c '! ls /etc/systemd/system/*/blueprintd* 2>/dev/null'
echo "$kept" >passed
