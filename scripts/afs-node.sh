#!/usr/bin/env bash
# A node of the cell of scripts/afs-cell.sh, which starts it in a mount and a UTS namespace of its own:
#   afs-node.sh DIR NODE
# makes the host's folders, with the cell's own in their places, the root of that namespace, tells so by DIR/NODE/ready,
# and sleeps: the namespaces last as long as that process.
set -eu

dir=$1 node=$2 root=$1/$2/root
mount -t tmpfs -o mode=755 node "$root"
# What is mounted deeper is left out, and so is FUSE: to hold the mounts of others would keep them from ending.
fuse=" $(awk '$3 ~ /^fuse/ { printf "%s ", $2 }' /proc/self/mounts)"
for entry in /*; do
    case $fuse in *" $entry "*) continue ;; esac
    if [ -L "$entry" ]; then
        cp -P "$entry" "$root$entry"
    elif [ -d "$entry" ]; then
        mkdir "$root$entry"
        case $entry in
            /dev | /proc | /sys) mount --rbind "$entry" "$root$entry" ;;
            *) mount --bind "$entry" "$root$entry" ;;
        esac
    fi
done
# But for what leads to DIR.
findmnt --raw --noheadings --output TARGET | while read -r place; do
    case $dir in "$place"/*) case $place in /*/*) mount --bind "$place" "$root$place" ;; esac ;; esac
done
mkdir "$root/before"
hostname "$node"
pivot_root "$root" "$root/before"
cd /
umount --lazy /before
rmdir /before
mount --bind "$dir/hosts" /etc/hosts
mount --bind "$dir/resolv.conf" /etc/resolv.conf
if [ -d "$dir/$node/etc" ]; then
    mkdir -p /vicepa /vicepb
    mount --bind "$dir/$node/etc" /etc/openafs
    mount --bind "$dir/$node/lib" /var/lib/openafs
    mount --bind "$dir/$node/log" /var/log/openafs
    mount --bind "$dir/$node/vicepa" /vicepa
    mount --bind "$dir/$node/vicepb" /vicepb
else
    mount --bind "$dir/client" /etc/openafs
fi
touch "$dir/$node/ready"
exec sleep infinity
