#!/usr/bin/env bash
# A real AFS cell on this machine, for tests and for trying things: the cell `weft.test` of OpenAFS's own servers and a
# Kerberos realm WEFT.TEST, in network namespaces that no route leads to or from. Takes root.
#   up DIR                    brings it up; everything it keeps is in DIR, which is made
#   down DIR                  ends it and removes DIR
#   on DIR NODE COMMAND...    runs a command on a node, at its root
#   start DIR NODE SERVER     starts a server of the cell that was stopped or has crashed
#   stop DIR NODE SERVER      ends one as a crash would
# Exit status 3: what it needs is not here.
#
# Nodes: fs1 (10.77.0.1: KDC, protection and volume location server, file server), fs2 (10.77.0.2: file server), the
# clients c1 and c2 (10.77.0.11, .12), and `admin` (10.77.0.10), from where file servers take whoever has no name for an
# administrator.
# The network of NODE is the namespace `weft-ID-NODE`, where ID, in DIR/id, is made from DIR: two cells do not meet.
# What is to be seen outside, like a mount, is run by its network alone: nsenter --net=/run/netns/weft-ID-c1 COMMAND.
#
# Each node has besides a mount namespace, kept by a process that sleeps in it (scripts/afs-node.sh): the host's folders
# with the cell's own /etc/openafs, /var/lib/openafs, /vicepa. The host's own are neither seen nor changed.
#
# In DIR: content/VOLUME (what is in each volume, as plain files), krb/USER.keytab (admin, alice, bob; passwords are
# USER-pw), krb/krb5.conf, client (a client's ThisCell and CellServDB), pids/NODE.SERVER, log, NODE/log.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export PATH="$PATH:/usr/sbin:/sbin"

readonly cell=weft.test realm=WEFT.TEST servers=/usr/lib/openafs
readonly -A address=([fs1]=10.77.0.1 [fs2]=10.77.0.2 [admin]=10.77.0.10 [c1]=10.77.0.11 [c2]=10.77.0.12)
readonly nodes=(fs1 fs2 admin c1 c2)
# Volumes in the order in which they are made: name, file server, owner, access.
readonly volumes=(
    "root.afs fs1 1 anyuser:rl"
    "root.cell fs1 1 anyuser:rl"
    "pub fs1 1 anyuser:rl"
    "user.alice fs1 1001 1001:rlidwka,anyuser:rl private=1001:rlidwka"
    "user.bob fs2 1002 1002:rlidwka,1001:-rlidwka,anyuser:rl look=1002:rlidwka,anyuser:l"
    "scratch fs1 1 anyuser:rlidwk"
    "replicated fs1 1 anyuser:rl"
)
# Those with read-only sites on both file servers.
readonly replicated=(root.cell replicated)

main() {
    local verb=${1:-}
    case $verb:$# in
        up:2 | down:2 | start:4 | stop:4) ;;
        on:*) [ $# -ge 4 ] || usage ;;
        *) usage ;;
    esac
    dir=$(realpath -m -- "$2")
    id=$(printf %s "$dir" | sha256sum | cut -c 1-8)
    shift 2
    [ "$(id -u)" -eq 0 ] || cannot "network namespaces need root: run this as root"
    if [ "$verb" != up ] && [ ! -f "$dir/id" ]; then
        [ "$verb" != down ] || { forget_networks && return 0; }
        fail "there is no cell in $dir: bring one up with: $0 up $dir"
    fi
    case $verb in
        on) known_node "$1" && exec_on "$@" ;;
        start | stop) known_node "$1" && "$verb" "$@" ;;
        *) "$verb" "$@" ;;
    esac
}

usage() {
    sed -n 's/^#   /afs-cell.sh /p' "$0" >&2
    exit 2
}

fail() {
    echo "afs-cell.sh: $*" >&2
    exit 1
}

cannot() {
    echo "afs-cell.sh: $*" >&2
    exit 3
}

known_node() {
    [ -n "${address[$1]:-}" ] || fail "there is no node $1; there are: ${nodes[*]}"
}

# --- up

up() {
    need_programs
    [ -z "$(ls -A "$dir" 2>/dev/null)" ] ||
        fail "$dir is not empty. If a cell is there, or what is left of one, end it with: $0 down $dir"
    begun=${EPOCHREALTIME/./}
    mkdir -p "$dir"/{pids,log,krb,client,cache,dumps}
    echo "$id" >"$dir/id"
    trap give_up EXIT
    trap 'exit 130' INT TERM
    make_dumps >"$dir/log/dumps" 2>&1 &
    making=$!
    write_configuration
    make_networks
    local node
    for node in "${nodes[@]}"; do hold "$node"; done
    for node in "${nodes[@]}"; do await 20 "the folders of $node" test -e "$dir/$node/ready"; done
    step "networks and folders"
    make_realm
    start fs1 krb5kdc
    start fs1 ptserver
    start fs1 vlserver
    step "Kerberos"
    await 20 "the KDC" grep -q 'commencing operation' "$dir/log/kdc"
    # A file server that finds no database with a quorum sleeps for half a minute before it asks again.
    await 60 "the protection database" takes_changes 7002
    await 60 "the volume location database" takes_changes 7003
    await 60 "the protection server's answers" on 5 c1 pts examine system:anyuser -noauth
    step "databases"
    # A demand-attach file server waits for its salvage server; a volume server asks for the file server's socket, ever
    # less often.
    for node in fs1 fs2; do start "$node" salvageserver && start "$node" dafileserver; done
    make_users
    for node in fs1 fs2; do
        await 60 "the file server of $node" test -S "$dir/$node/lib/local/fssync.sock"
        start "$node" davolserver
    done
    await 60 "the file servers' addresses in the volume location database" file_servers_known
    for node in fs1 fs2; do await 60 "the volume server of $node" on 5 "$node" vos partinfo "$node" a -noauth; done
    step "file servers"
    wait "$making" || fail "the volumes' content could not be made: $(tail -n 5 "$dir/log/dumps")"
    make_volumes
    rm -r "$dir/dumps"
    step "volumes"
    tell
}

# give_up : whatever goes wrong, nothing keeps running, and the logs stay.
give_up() {
    [ $? -ne 0 ] || return 0
    # It writes into DIR, which is the next to be removed.
    [ -z "${making:-}" ] || wait "$making" || true
    end_processes
    forget_networks
    echo "The logs are in $dir/log; remove them with: $0 down $dir" >&2
}

tell() {
    local client="nsenter --net=/run/netns/weft-$id-c1"
    cat <<TEXT

The cell $cell is up. What is in its volumes is in $dir/content as well. Try, as root:
  $0 on $dir c1 vos listvldb -noauth
  $0 on $dir c1 kinit -k -t $dir/krb/alice.keytab -c FILE:/tmp/alice alice
  $client bash                      a shell in the network of the client c1
OpenAFS's own client, and its end:
  mkdir -p /tmp/afs
  $client afsd.fuse -confdir $dir/client -cachedir $dir/cache -mountdir /tmp/afs -dynroot -fakestat
  ls /tmp/afs/$cell/pub
  fusermount3 -u /tmp/afs
To end the cell: $0 down $dir
TEXT
}

need_programs() {
    local program missing=()
    local programs=(ip nsenter unshare setsid findmnt pivot_root hostname realpath python3)
    programs+=(krb5kdc kdb5_util kadmin.local klist asetkey vos pts udebug)
    for program in "${programs[@]}"; do
        command -v "$program" >/dev/null || missing+=("$program")
    done
    for program in ptserver vlserver dafileserver davolserver salvageserver; do
        [ -x "$servers/$program" ] || missing+=("$program")
    done
    [ "${#missing[@]}" -eq 0 ] || cannot "missing: ${missing[*]}. Install them with: scripts/install-afs-server.sh"
}

step() {
    local ms=$(((${EPOCHREALTIME/./} - begun) / 1000))
    printf '%3d.%d s  %s\n' $((ms / 1000)) $((ms % 1000 / 100)) "$*"
}

make_dumps() {
    local python=/usr/bin/python3 volume name owner acls words=() acl
    [ -x "$python" ] || python=python3
    "$python" "$here/afs-content.py" "$dir/content"
    for volume in "${volumes[@]}"; do
        read -r name _ owner acls <<<"$volume"
        words=()
        for acl in $acls; do words+=("--acl=${acl/[^=]##/},admins:rlidwka"); done
        "$python" "$here/afs-dump.py" "$dir/content/$name" --name "$name" --owner "$owner" "${words[@]}" \
            >"$dir/dumps/$name"
    done
}

write_configuration() {
    local node
    echo "$cell" >"$dir/client/ThisCell"
    printf '>%s\n%s #fs1.%s\n' "$cell" "${address[fs1]}" "$cell" >"$dir/client/CellServDB"
    # For clients that are given this folder: mount point, cache folder, kilobytes.
    echo "/afs:$dir/cache:200000" >"$dir/client/cacheinfo"
    echo "127.0.0.1 localhost" >"$dir/hosts"
    # Empty, so that looking up a name fails at once.
    : >"$dir/resolv.conf"
    for node in "${nodes[@]}"; do
        echo "${address[$node]} $node.$cell $node" >>"$dir/hosts"
        mkdir -p "$dir/$node"/{root,log}
    done
    for node in fs1 fs2; do
        mkdir -p "$dir/$node"/{etc/server,lib/db,lib/local,vicepa,vicepb}
        chmod 700 "$dir/$node"/lib/{db,local}
        cp "$dir/client"/{ThisCell,CellServDB} "$dir/$node/etc"
        cp "$dir/client"/{ThisCell,CellServDB} "$dir/$node/etc/server"
        echo admin >"$dir/$node/etc/server/UserList"
        # A plain folder is taken for a partition where this file is.
        touch "$dir/$node"/vicep{a,b}/AlwaysAttach
    done
    write_kerberos_configuration
}

write_kerberos_configuration() {
    cat >"$dir/krb/krb5.conf" <<TEXT
[libdefaults]
    default_realm = $realm
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
[realms]
    $realm = {
        kdc = ${address[fs1]}
    }
[domain_realm]
    .$cell = $realm
    $cell = $realm
[logging]
    kdc = FILE:$dir/log/kdc
TEXT
    cat >"$dir/krb/kdc.conf" <<TEXT
[kdcdefaults]
    kdc_ports = 88
    kdc_tcp_ports = 88
[realms]
    $realm = {
        database_name = $dir/krb/principal
        key_stash_file = $dir/krb/stash
        acl_file = $dir/krb/kadm5.acl
        max_life = 24h
        supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
    }
TEXT
}

make_networks() {
    local node switch=weft-$id-switch
    ip netns add "$switch" || cannot "this machine refuses network namespaces"
    ip -n "$switch" link set lo up
    ip -n "$switch" link add switch type bridge
    ip -n "$switch" link set switch up
    for node in "${nodes[@]}"; do
        ip netns add "weft-$id-$node"
        ip -n "weft-$id-$node" link set lo up
        ip -n "weft-$id-$node" link add eth0 type veth peer name "$node" netns "$switch"
        ip -n "weft-$id-$node" address add "${address[$node]}/24" dev eth0
        ip -n "weft-$id-$node" link set eth0 up
        ip -n "$switch" link set "$node" master switch
        ip -n "$switch" link set "$node" up
    done
}

make_realm() {
    export KRB5_CONFIG=$dir/krb/krb5.conf KRB5_KDC_PROFILE=$dir/krb/kdc.conf
    run 60 kdb5_util create -s -r "$realm" -P "master-pw"
    local user kvno node
    {
        echo "addprinc -randkey -e aes256-cts-hmac-sha1-96:normal afs/$cell"
        # A key that is written out again without this would be a new one.
        echo "ktadd -norandkey -k $dir/krb/afs.keytab afs/$cell"
        for user in admin alice bob; do
            echo "addprinc -pw $user-pw $user"
            echo "ktadd -norandkey -k $dir/krb/$user.keytab $user"
        done
    } >"$dir/log/realm"
    run 60 kadmin.local -r "$realm" <"$dir/log/realm"
    kvno=$(klist -k "$dir/krb/afs.keytab" | awk '/ afs\// { print $1; exit }')
    [ -n "$kvno" ] || fail "the realm has no key for afs/$cell: see $dir/log/commands"
    for node in fs1 fs2; do
        # 18: aes256-cts-hmac-sha1-96.
        run 20 on 20 "$node" asetkey add rxkad_krb5 "$kvno" 18 "$dir/krb/afs.keytab" "afs/$cell"
    done
}

make_users() {
    local pts=(run 60 on 60 fs1 pts)
    "${pts[@]}" createuser admin 1 -localauth
    "${pts[@]}" adduser admin system:administrators -localauth
    "${pts[@]}" createuser alice 1001 -localauth
    "${pts[@]}" createuser bob 1002 -localauth
    # What is called from this address without a name has the rights of the groups of this entry.
    "${pts[@]}" createuser "${address[admin]}" -localauth
    "${pts[@]}" adduser "${address[admin]}" system:administrators -localauth
}

make_volumes() {
    local volume name node site vos=(run 60 on 60 fs1 vos)
    for volume in "${volumes[@]}"; do
        read -r name node _ <<<"$volume"
        "${vos[@]}" restore "$node" a "$name" -file "$dir/dumps/$name" -localauth
    done
    for name in "${replicated[@]}"; do
        # One after the other: a release to two sites at once sleeps for five seconds in between.
        for site in fs1 fs2; do
            "${vos[@]}" addsite "$site" a "$name" -localauth
            "${vos[@]}" release "$name" -localauth
        done
    done
}

# run SECONDS COMMAND... : a command that must succeed in that time; its output goes into the log.
run() {
    local seconds=$1
    shift
    [ "$1" = on ] || set -- timeout -k 5 "$seconds" "$@"
    if ! "$@" >"$dir/log/command" 2>&1; then
        fail "this failed, or took longer than $seconds s: $*"$'\n'"$(tail -n 20 "$dir/log/command")"
    fi
    { echo "$ $*" && cat "$dir/log/command" && echo; } >>"$dir/log/commands"
}

# await SECONDS WHAT COMMAND... : repeats a command until it succeeds, as long as everything that was started is alive.
await() {
    local until=$((SECONDS + $1)) seconds=$1 what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        all_alive
        [ "$SECONDS" -lt "$until" ] || fail "waited $seconds s for $what in vain"
        sleep 0.02
    done
}

# takes_changes PORT : whether a database has found its newest version. A lone server is "sync site" from its first moment, and
# refuses changes, or loses one (observed), until then.
takes_changes() {
    on 5 c1 udebug "${address[fs1]}" "$1" | grep -Eq '^Recovery state [0-9a-f]*[7f]$'
}

file_servers_known() {
    [ "$(on 5 fs1 vos listaddrs -noauth | grep -c .)" -eq 2 ]
}

# --- nodes

# exec_on NODE COMMAND... : becomes that command, on that node.
exec_on() {
    local node=$1 pid
    shift
    pid=$(cat "$dir/pids/$node.hold" 2>/dev/null) || pid=none
    ours "$pid" "$node" || fail "the node $node has ended: bring the cell up again"
    export KRB5_CONFIG=$dir/krb/krb5.conf
    exec nsenter --target "$pid" --net --mount --uts -- "$@"
}

# on SECONDS NODE COMMAND... : runs it, not longer than that.
on() {
    local seconds=$1
    shift
    timeout -k 5 "$seconds" "$here/afs-cell.sh" on "$dir" "$@"
}

# hold NODE : starts the process that keeps a node's namespaces.
hold() {
    background "$1.hold" nsenter --net="/run/netns/weft-$id-$1" \
        unshare --mount --uts --propagation private "$here/afs-node.sh" "$dir" "$1"
}

# --- servers

# start NODE SERVER : starts a server and remembers its process.
start() {
    local node=$1 server=$2 command file=$dir/pids/$1.$2
    case $server in
        krb5kdc) command=(env "KRB5_KDC_PROFILE=$dir/krb/kdc.conf" krb5kdc -n -r "$realm") ;;
        # As Debian's afs-newcell starts it, but for what it writes at once.
        dafileserver)
            command=("$servers/dafileserver" -p 23 -busyat 600 -rxpck 400 -s 1200 -l 1200 -cb 65535 -b 240 -vc 1200 \
                -d 1 -sync never)
            ;;
        davolserver) command=("$servers/davolserver" -sync never) ;;
        ptserver | vlserver | salvageserver) command=("$servers/$server") ;;
        *) fail "there is no server $server; there are: krb5kdc ptserver vlserver" \
            "salvageserver dafileserver davolserver" ;;
    esac
    if [ -f "$file" ] && ours "$(cat "$file")" "$node"; then
        fail "$server runs on $node already"
    fi
    background "$node.$server" "$here/afs-cell.sh" on "$dir" "$node" "${command[@]}"
    # Until it is on its node, or has ended: who stops it before would take it for somebody else's process.
    until ours "$(cat "$file")" "$node" || ! readlink -q "/proc/$(cat "$file")/ns/net" >/dev/null; do
        sleep 0.01
    done
}

# stop NODE SERVER : kills a server that `start` or `up` has started.
stop() {
    local file=$dir/pids/$1.$2
    [ -f "$file" ] || fail "no $2 was started on $1; there are: $(cd "$dir/pids" && echo ./*)"
    end "$file"
}

# background NAME COMMAND... : leaves a command running, and remembers its process.
background() {
    local name=$1
    shift
    # In a session of its own: what ends whoever brought the cell up does not end the cell.
    setsid "$@" </dev/null >>"$dir/log/$name" 2>&1 &
    echo $! >"$dir/pids/$name"
    disown
}

# ours PID NODE : whether a process is alive and on that node: a number of ours may have become another's.
ours() {
    local there
    there=$(stat -L -c %i "/proc/$1/ns/net" 2>/dev/null) || return 1
    [ "$there" = "$(stat -L -c %i "/run/netns/weft-$id-$2" 2>/dev/null)" ]
}

# all_alive : ends the script where something that was started has ended.
all_alive() {
    local file name pid
    for file in "$dir"/pids/*; do
        name=${file##*/}
        pid=$(cat "$file")
        # What has ended and was not waited for has no such link.
        readlink -q "/proc/$pid/ns/net" >/dev/null ||
            fail "$name has ended. What it said last:"$'\n'"$(last_lines "${name%%.*}" "${name#*.}")"
    done
}

# last_lines NODE SERVER
last_lines() {
    local log
    case $2 in
        ptserver) log=PtLog ;;
        vlserver) log=VLLog ;;
        dafileserver) log=FileLog ;;
        davolserver) log=VolserLog ;;
        salvageserver) log=SalsrvLog ;;
        *) log=none ;;
    esac
    for log in "$dir/log/$1.$2" "$dir/$1/log/$log"; do
        [ ! -s "$log" ] || tail -n 10 "$log"
    done
}

# --- down

down() {
    end_processes
    forget_networks
    # Only what `up` has made: DIR itself may be another's.
    find "$dir" -xdev -mindepth 1 -delete
    rmdir "$dir" 2>/dev/null || true
}

end_processes() {
    local file
    # The nodes last: who is on them is looked for by their networks.
    for file in "$dir"/pids/*; do
        [ ! -f "$file" ] || end "$file"
    done
}

# end FILE : ends the process remembered there, and waits until it has.
end() {
    local pid node=${1##*/} until=$((SECONDS + 10))
    node=${node%%.*}
    pid=$(cat "$1")
    while ours "$pid" "$node"; do
        kill -KILL "$pid" 2>/dev/null || true
        [ "$SECONDS" -lt "$until" ] || fail "the process $pid (${1##*/}) does not end"
        sleep 0.01
    done
    rm -f "$1"
}

# forget_networks : takes the names of the namespaces away; they end with who is left in them.
forget_networks() {
    local node name left
    for node in "${nodes[@]}" switch; do
        name=weft-$id-$node
        [ -e "/run/netns/$name" ] || continue
        left=$(ip netns pids "$name" | tr '\n' ' ')
        [ -z "$left" ] || echo "afs-cell.sh: not started by the cell and still on its node $node: $left" >&2
        ip netns delete "$name"
    done
}

main "$@"
