#!/usr/bin/env bash
# Installs what the tests run against: real web servers and real clients, programs that write files their own way, and a clock
# that is wrong.
# The servers are started by the tests alone: the services that Debian's packages would start are not.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh

# shellcheck disable=SC2046  # no package at all where nginx is there
need_servers acl fuse3 rsync curl strace git sqlite3 apache2 lighttpd lighttpd-mod-webdav rclone tinyproxy-bin microsocks \
    libfaketime $(nginx_package)
scripts/install-afs-server.sh || echo "Going on without a real AFS cell." >&2
