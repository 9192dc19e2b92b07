# Sourced by the other scripts: installing Debian packages after saying so.

# need_packages PACKAGE... : installs those that are missing.
need_packages() {
    local missing=() package
    for package in "$@"; do
        if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed'; then
            missing+=("$package")
        fi
    done
    [ "${#missing[@]}" -eq 0 ] && return 0
    if ! command -v apt-get >/dev/null; then
        echo "Missing: ${missing[*]}. This is no Debian or Ubuntu: please install them by hand." >&2
        return 1
    fi
    echo "Installing Debian packages: ${missing[*]}"
    as_root apt-get update -qq || echo "apt-get update failed; trying with the lists that are there" >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
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
