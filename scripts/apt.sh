# Sourced by the other scripts: installing Debian packages after saying so.

# missing_packages PACKAGE... : prints those that are not installed, one a line.
missing_packages() {
    local package
    for package in "$@"; do
        if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed'; then
            echo "$package"
        fi
    done
}

# need_packages PACKAGE... : installs those that are missing.
need_packages() {
    local missing
    mapfile -t missing < <(missing_packages "$@")
    [ "${#missing[@]}" -eq 0 ] && return 0
    if ! command -v apt-get >/dev/null; then
        echo "Missing: ${missing[*]}. This is no Debian or Ubuntu: please install them by hand." >&2
        return 1
    fi
    echo "Installing Debian packages: ${missing[*]}"
    as_root apt-get update -qq || echo "apt-get update failed; trying with the lists that are there" >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# need_servers PACKAGE... : the same without starting their services: tests and the bench start servers themselves, on
# free ports of 127.0.0.1. Whoever has a policy for services already keeps it.
need_servers() (
    policy=/usr/sbin/policy-rc.d
    if [ -n "$(missing_packages "$@")" ] && [ ! -e "$policy" ]; then
        trap 'as_root rm -f "$policy"' EXIT
        # 101: starting a service is forbidden (invoke-rc.d(8)).
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
    fi
    need_packages "$@"
)

# nginx_package : the package that gives nginx; nothing where some variant is there.
nginx_package() {
    command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || echo nginx-light
}

# as_root COMMAND... : by sudo unless root already.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "Root is needed for: $*" >&2
        echo "There is no sudo here: run that as root, then try again." >&2
        return 1
    fi
}
