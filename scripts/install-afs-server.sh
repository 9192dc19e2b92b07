#!/usr/bin/env bash
# Installs the servers of a real AFS cell for scripts/afs-cell.sh: OpenAFS and MIT Kerberos, from Debian packages, with
# no question asked. Nothing of it is started, now or at the next boot: the cell's script starts servers of its own,
# with files of their own.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh

# `openafs-fuse` is the client to compare with. `fuse` must not be named here: it would replace fuse3.
packages=(krb5-kdc krb5-admin-server krb5-user openafs-fileserver openafs-dbserver openafs-krb5 openafs-client
    openafs-fuse iproute2 util-linux python3)
# What would run at each boot once its package is there.
services=(krb5-kdc krb5-admin-server openafs-fileserver openafs-client)

# answers : the questions of packages that have no default to go on with.
answers() {
    cat <<'TEXT'
openafs-client openafs-client/thiscell string weft.test
openafs-client openafs-client/cell-info string 10.77.0.1
openafs-client openafs-client/cachesize string 200000
openafs-client openafs-client/run-client boolean false
openafs-client openafs-client/afsdb boolean false
openafs-fileserver openafs-fileserver/thiscell string weft.test
TEXT
}

mapfile -t missing < <(missing_packages "${packages[@]}")
[ "${#missing[@]}" -gt 0 ] || exit 0

if command -v debconf-set-selections >/dev/null; then
    # Whoever has one of the two keeps the answers given then.
    answers | grep -E "^($(IFS='|'; echo "${missing[*]}")) " | as_root debconf-set-selections || true
fi
if ! need_servers "${packages[@]}"; then
    echo "No AFS servers could be installed: the tests that need a real cell will say that they are skipped." >&2
    echo "On Debian and Ubuntu try again with: scripts/install-afs-server.sh" >&2
    exit 1
fi
if command -v systemctl >/dev/null; then
    for service in "${services[@]}"; do
        case " ${missing[*]} " in
            *" $service "*) as_root systemctl disable --quiet "$service" || true ;;
        esac
    done
fi
