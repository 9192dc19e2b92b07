#!/usr/bin/env python3
"""Writes an AFS volume dump of a tree on disk to standard output, for `vos restore`.

    afs-dump.py TREE --name VOLUME [--owner ID] --acl [PATH=]WHO:RIGHTS,...

Kept are names, bytes, modes, times of modification, hard links within one directory, and symbolic links. A symbolic
link that reads as a mount point (`#volume.` or `%cell:volume.`) is one. WHO is a number of a user, or one of `admins`,
`anyuser`, `authuser`; RIGHTS are letters of `rlidwka`, denied after a `-`. An ACL holds for PATH (the whole tree where
none is given) and what is below it, until another one is named there.

The format is the one of OpenAFS (facts from its src/volser/dumpstuff.c, src/dir/dir.h, src/libacl/acl.h): a header of
the dump, one of the volume, and vnodes, each with tagged fields. Directories have odd vnode numbers, the root is 1; all
else has even ones. A directory's content is pages of 64 blobs of 32 bytes: the first 13 of page 0, and the first of
every other page, are headers; an entry takes one blob, and another for each 32 bytes of its name beyond the 16th, its
NUL counted.
"""

import argparse
import os
import stat
import struct
import sys

PAGE_BYTES, BLOB_BYTES, PAGE_BLOBS, CHAINS = 2048, 32, 64, 128
# Most pages of a directory, and those that its map of free blobs has room for.
PAGES_MAX, MAPPED_PAGES = 1023, 128
GROUPS = {"admins": -204, "anyuser": -101, "authuser": -102}
RIGHTS = {"r": 1, "w": 2, "i": 4, "l": 8, "d": 16, "k": 32, "a": 64}
ACL_BYTES = 192
FILE, DIRECTORY, SYMLINK = 1, 2, 3


class Directory:
    """The pages of a directory."""

    def __init__(self, vnode, parent):
        self.pages, self.free, self.chains = [], [], [0] * CHAINS
        self.page(13)
        self.add(b".", vnode)
        self.add(b"..", parent)

    def page(self, header_blobs):
        if len(self.pages) == PAGES_MAX:
            raise ValueError("a directory has too many names")
        self.pages.append([b""] * header_blobs)

    def add(self, name, vnode):
        blobs = 1 + (len(name) + 16) // BLOB_BYTES
        if len(self.pages[-1]) + blobs > PAGE_BLOBS:
            self.page(1)
        page = self.pages[-1]
        chain = chain_of(name)
        # The unique part of a fid is the vnode number here: nothing has been used twice.
        entry = struct.pack(">BBHII", 1, 0, self.chains[chain], vnode, vnode) + name
        self.chains[chain] = PAGE_BLOBS * (len(self.pages) - 1) + len(page)
        page.extend([entry.ljust(BLOB_BYTES * blobs, b"\0")] + [b""] * (blobs - 1))

    def content(self):
        """All pages: 2048 bytes each."""
        free = [PAGE_BLOBS - len(page) for page in self.pages[:MAPPED_PAGES]]
        out = b""
        for number, page in enumerate(self.pages):
            used = ((1 << len(page)) - 1).to_bytes(8, "little")
            count = len(self.pages) if number == 0 else 0
            header = struct.pack(">HHB8s19x", count, 1234, PAGE_BLOBS - (13 if number == 0 else 1), used)
            if number == 0:
                header += bytes(free + [PAGE_BLOBS] * (MAPPED_PAGES - len(free)))
                header += struct.pack(">%dH" % CHAINS, *self.chains)
            out += (header + b"".join(page)).ljust(PAGE_BYTES, b"\0")
        return out


def chain_of(name):
    """The hash chain of a name."""
    value = 0
    for byte in name:
        value = (value * 173 + byte) & 0xFFFFFFFF
    chain = value % CHAINS
    return CHAINS - chain if chain and value >= 1 << 31 else chain


def acl_bytes(text):
    """An ACL as a vnode holds it: granted ones in the order of their ids, denied ones from the end."""
    granted, denied = [], []
    for entry in text.split(","):
        who, rights = entry.split(":")
        ident = GROUPS[who] if who in GROUPS else int(who)
        bits = sum(RIGHTS[letter] for letter in rights.lstrip("-"))
        (denied if rights.startswith("-") else granted).append((ident, bits))
    entries = sorted(granted) + sorted(denied, reverse=True)
    packed = b"".join(struct.pack(">ii", *entry) for entry in entries)
    size = 20 + len(packed)
    return (struct.pack(">iiiii", size, 1, len(entries), len(granted), len(denied)) + packed).ljust(ACL_BYTES, b"\0")


class Dump:
    """The vnodes of one tree, in the order in which they are written: directories first."""

    def __init__(self, owner, acls):
        self.owner, self.acls = owner, acls
        self.directories, self.others, self.links = {}, {}, {}
        self.used_kilobytes = 0

    def directory(self, path, below, vnode, parent, acl):
        """Takes in a directory and what is in it. `below` is its path in the tree."""
        acl = self.acls.get(below, acl)
        self.directories[vnode] = b""
        pages, inner = Directory(vnode, parent), 0
        for name in sorted(os.listdir(path)):
            full = os.path.join(path, name)
            status = os.lstat(full)
            if stat.S_ISDIR(status.st_mode):
                inner += 1
                child = 2 * len(self.directories) + 1
                self.directory(full, os.path.join(below, name), child, vnode, acl)
            else:
                child = self.other(full, status, vnode)
            pages.add(name, child)
        status = os.lstat(path)
        fields = b"A" + acl_bytes(acl)
        self.directories[vnode] = self.vnode(
            vnode, parent if vnode != parent else 0, DIRECTORY, 2 + inner, status, fields, pages.content()
        )

    def other(self, path, status, parent):
        """Takes in a file or a symbolic link, unless it is another name of one; its vnode number."""
        inode = (status.st_dev, status.st_ino)
        if inode in self.links:
            child, directory = self.links[inode]
            if directory != parent:
                raise ValueError("%r: hard links of AFS are within one directory" % path)
            return child
        child = 2 * (len(self.others) + 1)
        self.links[inode] = child, parent
        if stat.S_ISLNK(status.st_mode):
            kind, content = SYMLINK, os.fsencode(os.readlink(path))
        else:
            with open(path, "rb") as file:
                kind, content = FILE, file.read()
        self.others[child] = self.vnode(child, parent, kind, status.st_nlink, status, b"", content)
        return child

    def vnode(self, number, parent, kind, links, status, fields, content):
        self.used_kilobytes += (len(content) + 1023) // 1024
        mode = status.st_mode & 0o7777
        if kind == SYMLINK:
            # Mount points are told from links by their mode.
            mode = 0o644 if content[:1] in (b"#", b"%") and content.endswith(b".") else 0o755
        seconds = int(status.st_mtime)
        return (
            struct.pack(">BII", 3, number, number)
            + struct.pack(">cB cH cI cI", b"t", kind, b"l", links, b"v", 1, b"m", seconds)
            + struct.pack(">cI cI cH", b"a", self.owner, b"o", self.owner, b"b", mode)
            + struct.pack(">cI cI", b"p", parent, b"s", seconds)
            + fields
            + struct.pack(">cI", b"f", len(content))
            + content
        )

    def write(self, out, name, seconds):
        """Writes all of it. The volume's number is given by whoever restores it."""
        name = name.encode() + b"\0"
        count = len(self.directories) + len(self.others)
        out.write(struct.pack(">BII cI", 1, 0xB3A11322, 1, b"v", 1) + b"n" + name)
        out.write(struct.pack(">cHII", b"t", 2, 0, seconds))
        out.write(struct.pack(">B cI cI", 2, b"i", 1, b"v", 1) + b"n" + name)
        out.write(struct.pack(">cB cB cI cB", b"s", 1, b"b", 1, b"u", 2 * count + 2, b"t", 0))
        # No quota.
        out.write(struct.pack(">cI cI cI", b"q", 0, b"d", self.used_kilobytes, b"f", count))
        out.write(struct.pack(">cI cI", b"C", seconds, b"U", seconds))
        for vnode in list(self.directories.values()) + list(self.others.values()):
            out.write(vnode)
        out.write(struct.pack(">BI", 4, 0x3A214B6E))


def main():
    parser = argparse.ArgumentParser(description="Writes an AFS volume dump of a tree.")
    parser.add_argument("tree")
    parser.add_argument("--name", required=True)
    parser.add_argument("--owner", type=int, default=1)
    parser.add_argument("--acl", action="append", required=True)
    given = parser.parse_args()
    acls = {}
    for acl in given.acl:
        path, equals, entries = acl.rpartition("=")
        acls[os.fsencode(path)] = entries
    dump = Dump(given.owner, acls)
    dump.directory(os.fsencode(given.tree), b"", 1, 1, acls[b""])
    dump.write(sys.stdout.buffer, given.name, int(os.stat(given.tree).st_mtime))


main()
