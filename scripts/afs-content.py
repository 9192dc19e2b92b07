#!/usr/bin/env python3
"""Makes the trees of the volumes of the test cell, DIR/VOLUME each: the same bytes, modes and times at every run.

    afs-content.py DIR

scripts/afs-dump.py turns each of them into a volume; symbolic links that read as mount points become such.
"""

import hashlib
import os
import sys

# 2024-02-03 00:00:00 UTC; every file has a whole minute of its own after that.
BEGIN = 1_706_918_400
MANY = 3000


class Tree:
    """One volume's tree on disk."""

    def __init__(self, top):
        self.top, self.minutes = os.fsencode(top), 0
        os.makedirs(self.top)

    def path(self, name):
        return os.path.join(self.top, os.fsencode(name))

    def age(self, path):
        self.minutes += 1
        seconds = BEGIN + 60 * self.minutes
        os.utime(path, (seconds, seconds), follow_symlinks=False)

    def file(self, name, content, mode=0o644):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, mode)
        self.age(path)

    def link(self, name, target):
        os.symlink(target, self.path(name))
        self.age(self.path(name))

    def mount(self, name, volume):
        """A mount point: of the read-only volume where the way here was one, of the other otherwise."""
        self.link(name, "#%s." % volume)

    def done(self):
        for path, _, _ in os.walk(self.top, topdown=False):
            os.chmod(path, 0o755)
            self.age(path)


def noise(label, length):
    """Bytes without a pattern, the same for the same label."""
    return hashlib.shake_256(label.encode()).digest(length)


def pub(tree):
    for number in range(360):
        text = ("file %d of the public volume\n" % number) * (1 + number * 37 % 90)
        tree.file("d%02d/%s/f%03d.txt" % (number % 6, "abc"[number % 3], number), text.encode())
    tree.file("large.bin", noise("large", 3 << 20))
    # One chunk of the usual client, one byte less and one more.
    for length in ((1 << 18) - 1, 1 << 18, (1 << 18) + 1):
        tree.file("sizes/%d" % length, noise("sizes", length))
    tree.file("empty", b"")
    tree.file("program", b"#!/bin/sh\necho ran\n", 0o755)
    tree.file("nested/deep/deeper/bottom.txt", b"found\n")
    tree.link("link", "d00/a/f000.txt")
    tree.link("dangling", "not/there")
    tree.file("twice/one", b"one file with two names\n")
    os.link(tree.path("twice/one"), tree.path("twice/other"))
    # Where a name begins to need one more blob of its directory's page, and the longest name.
    for length in (15, 16, 47, 48, 255):
        tree.file("names/" + ("%d-" % length).ljust(length, "n"), b"%d bytes\n" % length)
    for name in ("caf\u00e9", "\u65e5\u672c\u8a9e.txt", "\U0001f9f5 thread", "\u00e9" * 127, " space ", "back\\slash"):
        tree.file("names/" + name, name.encode())
    for number in range(MANY):
        tree.file("many/name-%04d" % number, b"%d\n" % number)


def main():
    top = sys.argv[1]
    for name, fill in VOLUMES.items():
        tree = Tree(os.path.join(top, name))
        fill(tree)
        tree.done()


def root_afs(tree):
    tree.mount("weft.test", "weft.test:root.cell")
    tree.link(".weft.test", "%weft.test:root.cell.")


def root_cell(tree):
    for name, volume in (("pub", "pub"), ("scratch", "scratch"), ("replicated", "replicated")):
        tree.mount(name, volume)
    os.mkdir(tree.path("user"))
    tree.mount("user/alice", "user.alice")
    tree.mount("user/bob", "user.bob")
    tree.link("home", "user/alice")
    tree.link(".replicated", "%replicated.")


def alice(tree):
    tree.file("notes.txt", b"notes of alice\n")
    tree.file("private/diary.txt", b"for alice alone\n", 0o600)


def bob(tree):
    tree.file("notes.txt", b"notes of bob\n")
    tree.file("look/letter.txt", b"sealed\n")


def replicated(tree):
    for number in range(20):
        tree.file("d%d/f%02d.txt" % (number % 2, number), b"replicated %d\n" % number)
    tree.file("large.bin", noise("replicated", 1 << 20))


def scratch(tree):
    tree.file("readme.txt", b"anybody may write here\n")


VOLUMES = {
    "root.afs": root_afs,
    "root.cell": root_cell,
    "user.alice": alice,
    "user.bob": bob,
    "pub": pub,
    "scratch": scratch,
    "replicated": replicated,
}

main()
