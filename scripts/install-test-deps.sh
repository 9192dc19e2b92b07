#!/usr/bin/env bash
# Installs what the tests run against: real web servers and real clients. The servers are started by the tests
# alone, on free ports of 127.0.0.1: the services that Debian's packages would start are not.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh

policy=/usr/sbin/policy-rc.d
made_policy=no
forget_policy() {
    if [ "$made_policy" = yes ]; then
        as_root rm -f "$policy"
    fi
}
trap forget_policy EXIT

servers=(nginx-light apache2 lighttpd)
# Full variants serve as well.
if command -v nginx >/dev/null || [ -x /usr/sbin/nginx ]; then
    servers=(apache2 lighttpd)
fi

# 101: starting a service is forbidden (invoke-rc.d(8)). Whoever has a policy already keeps it.
if [ ! -e "$policy" ]; then
    made_policy=yes
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
fi
need_packages fuse3 rsync curl strace "${servers[@]}"
