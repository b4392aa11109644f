#!/usr/bin/env bash
# Installs, starts, upgrades and removes two packages of Quorate, the second newer than the first:
#
#   packaging/try.sh OLD.deb NEW.deb
#
# in a copy-on-write view of this machine with a network of its own, of which nothing is left. There is no systemd in
# it: what the unit runs is run as it says, as its user. Needs root, on Debian or a system made from it.
set -euo pipefail

if [ "${1:-}" != --inside ]; then
    [ $# = 2 ] || { echo "usage: $0 OLD.deb NEW.deb" >&2; exit 2; }
    [ "$(id -u)" = 0 ] || { echo "$0: needs root, for a root directory of its own" >&2; exit 2; }
    place=$(mktemp -d)
    trap 'rmdir "$place"' EXIT
    script=$(readlink -f "$0")
    unshare --mount --net --pid --fork --kill-child bash -euo pipefail -c '
        place=$1 script=$2 old=$3 new=$4
        mount -t tmpfs tmpfs "$place"
        mkdir "$place/upper" "$place/work" "$place/root"
        mount -t overlay overlay -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" "$place/root"
        for directory in proc dev sys; do mount --rbind "/$directory" "$place/root/$directory"; done
        mount -t proc proc "$place/root/proc"
        mount -t tmpfs tmpfs "$place/root/run"
        mount -t tmpfs tmpfs "$place/root/tmp"
        install -D -m 755 "$script" "$place/root/run/try/try.sh"
        cp "$old" "$place/root/run/try/old.deb"
        cp "$new" "$place/root/run/try/new.deb"
        ip link set lo up
        chroot "$place/root" /run/try/try.sh --inside
    ' -- "$place" "$script" "$1" "$2"
    exit
fi

cd /run/try
export DEBIAN_FRONTEND=noninteractive
unit=/lib/systemd/system/quorate.service
node=

say() { echo "== $*"; }
fail() { echo "failed: $*" >&2; exit 1; }
expect() { [ "$2" = "$3" ] || fail "$1: found '$2', expected '$3'"; }
version() { dpkg-query --show --showformat='${Version}' quorate; }
setting() { sed -n "s/^$1=//p" "$unit"; }

# Runs what the unit runs, as its user, with its directory and without more rights than it has.
start() {
    local user group
    user=$(setting User) group=$(setting Group)
    install -d -o "$user" -g "$group" -m "$(setting StateDirectoryMode)" "/var/lib/$(setting StateDirectory)"
    # shellcheck disable=SC2046 # the words of the command
    setpriv --reuid "$user" --regid "$group" --clear-groups --bounding-set=-all --no-new-privs \
        $(setting ExecStart) 2>> /run/try/log &
    node=$!
    for _ in $(seq 300); do
        if quorate get readiness > /run/try/out 2>&1 || [ $? = 1 ]; then return; fi
        kill -0 "$node" 2> /run/try/out || break
        sleep 0.1
    done
    cat /run/try/log >&2
    fail "the service does not serve"
}

stop() {
    kill -TERM "$node"
    wait "$node" || fail "the service ended with $?"
}

say "installing $(dpkg-deb --field old.deb Version)"
dpkg --install old.deb
getent passwd quorate > /run/try/out || fail "there is no user quorate"
expect "the configuration" "$(stat -c '%a %U:%G' /etc/quorate/quorate.toml)" "640 root:quorate"
expect "its directory" "$(stat -c '%a %U:%G' /etc/quorate)" "750 root:quorate"
for file in /usr/share/man/man1/quorate.1* /usr/share/man/man1/quorate-serve.1* \
    /usr/share/bash-completion/completions/quorate /usr/share/zsh/vendor-completions/_quorate \
    /usr/share/fish/vendor_completions.d/quorate.fish /usr/share/quorate/alerts.yml; do
    [ -s "$file" ] || fail "$file is not there"
done
if file --brief --dereference /usr/bin/quorate 2> /run/try/out | grep -q "not stripped"; then
    fail "the program is not stripped"
fi
if command -v systemd-analyze > /run/try/out; then
    systemd-analyze verify --man=no "$unit" 2>&1 | tee /run/try/verified
    ! grep -q quorate /run/try/verified || fail "systemd finds fault with the unit"
fi

say "starting what the unit runs"
start
expect "a write" "$(quorate put greeting hello)" "OK"
stop

say "upgrading to $(dpkg-deb --field new.deb Version)"
echo "# changed by the operator" >> /etc/quorate/quorate.toml
dpkg --install new.deb
expect "the version" "$(version)" "$(dpkg-deb --field new.deb Version)"
tail -1 /etc/quorate/quorate.toml | grep -q operator || fail "the upgrade has changed the configuration"
start
expect "what was written before" "$(quorate get greeting)" "hello"
stop

say "removing"
dpkg --remove quorate
[ ! -e /usr/bin/quorate ] || fail "the program is still there"
[ -e /etc/quorate/quorate.toml ] || fail "the configuration is gone before a purge"
dpkg --purge quorate
[ ! -e /etc/quorate/quorate.toml ] || fail "the configuration is still there after a purge"
[ -d /var/lib/quorate ] && [ -n "$(ls -A /var/lib/quorate)" ] || fail "the data are gone"
say "the package is installed, started, upgraded and removed"
