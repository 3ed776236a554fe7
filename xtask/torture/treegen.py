#!/usr/bin/env python3
"""treegen.py DIR [--seed N] [--extra N]: a tree that is hard to copy. Root gives the full set.

Sizes around every boundary, names of every kind, a path longer than PATH_MAX, links and loops of links, hard links
over directories, modes, owners, extended attributes, ACLs, capabilities, holes, special files, times before 1970 and
after 2106. What the file system below refuses is named on standard error and left out.
"""
import argparse, os, random, socket, stat, struct, subprocess, sys

NAMES = [
    b" ", b"-", b"-rf", b"--help", b"a\nb", b"tab\tx", b"cr\rx", b"esc\x1b[2Jx", b"osc\x1b]0;t\x07x", b"\xff\xfe",
    b"caf\xe9", "caf\u00e9".encode(), "cafe\u0301".encode(), b"bad\xc3", b"\x01", b"\x7f", b"q'uote", b'd"q',
    b"back\\slash", b"a:b", b"h:ost", b"user@h:x", b"*", b"?", b"[a]", b"$HOME", b"$(id)", b"`id`", b";x", b"|x",
    b"~", b"#x", b"%s%n", b"...", b". .", b"A", b"a", b"\xe2\x80\xaertl", b"n" * 255, "\u00e9".encode() * 127,
    b".bcmr", b"x.part", b"x.tmp", b".x.tmp.123", b"x~", b"con", b"nul", b"trailing ", b"trailing.", b'{"j":1}',
]
KIB = 1024
SIZES = [0, 1, 511, 512, 513, 4095, 4096, 4097, 65535, 65536, 65537, 131071, 131073, KIB**2 - 1, KIB**2 + 1,
         4 * KIB**2 - 1, 4 * KIB**2, 4 * KIB**2 + 1]


class Tree:
    def __init__(self, top, seed, root):
        self.top, self.dice, self.root, self.refused = os.fsencode(top), random.Random(seed), root, []
        os.makedirs(self.top, exist_ok=True)

    def at(self, *parts):
        return os.path.join(self.top, *parts)

    def dir(self, *parts):
        os.makedirs(self.at(*parts), exist_ok=True)
        return self.at(*parts)

    def file(self, *parts, data=b"x"):
        with open(self.at(*parts), "wb") as f:
            f.write(data)
        return self.at(*parts)

    def attempt(self, what, action):
        try:
            action()
        except (OSError, AttributeError) as e:
            self.refused.append(f"{what}: {e}")

    def sizes_and_names(self):
        self.dir(b"sizes")
        for n in SIZES:
            self.file(b"sizes", b"s%d" % n, data=self.dice.randbytes(n))
        self.dir(b"names")
        for n in NAMES:
            self.file(b"names", n, data=n)

    def deep(self):
        """Longer than PATH_MAX, so made step by step through directory handles."""
        fd = os.open(self.dir(b"deep"), os.O_RDONLY)
        for _ in range(25):
            os.mkdir(b"d" * 200, dir_fd=fd)
            below = os.open(b"d" * 200, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = below
        bottom = os.open(b"bottom", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=fd)
        os.write(bottom, b"bottom")
        os.close(bottom)
        os.close(fd)

    def links(self):
        self.dir(b"links", b"sub")
        self.file(b"links", b"t", data=b"target")
        for name, target in (
            (b"rel", b"t"), (b"abs", b"/etc/hostname"), (b"dangling", b"nope"), (b"self", b"self"), (b"loopA", b"loopB"),
            (b"loopB", b"loopA"), (b"up", b"../.."), (b"dirlink", b"sub"), (b"dot", b"."), (b"slash", b"sub/"),
            (b"nl", b"a\nb"), (b"badutf", b"\xff"), (b"long", b"y" * (1000 if self.short_links() else 4000)), (b"rootlink", b"/"),
        ):
            os.symlink(target, self.at(b"links", name))
        self.dir(b"hl", b"a"), self.dir(b"hl", b"b")
        one = self.file(b"hl", b"a", b"1", data=b"hl1")
        os.link(one, self.at(b"hl", b"a", b"2"))
        os.link(one, self.at(b"hl", b"b", b"3"))
        os.symlink(b"z", self.at(b"hl", b"a", b"sl"))
        os.link(self.at(b"hl", b"a", b"sl"), self.at(b"hl", b"b", b"sl2"), follow_symlinks=False)

    def short_links(self):
        """xfs holds no target above 1024 bytes."""
        probe = self.at(b".probe")
        try:
            os.symlink(b"y" * 4000, probe)
        except OSError:
            return True
        os.unlink(probe)
        return False

    def modes_and_owners(self):
        self.dir(b"modes")
        for m in (0o000, 0o400, 0o444, 0o600, 0o640, 0o666, 0o755, 0o777, 0o1644, 0o2755, 0o4755, 0o6755, 0o7777):
            os.chmod(self.file(b"modes", b"f%o" % m), m)
        for m in (0o700, 0o555, 0o1777, 0o2775, 0o000):
            self.file(os.path.join(self.dir(b"modes", b"d%o" % m), b"in"))
            os.chmod(self.at(b"modes", b"d%o" % m), m)
        if not self.root:
            return
        self.dir(b"own")
        for u, g in ((0, 0), (1000, 1000), (65534, 65534), (12345, 54321), (4294967294, 4294967294)):
            p = self.file(b"own", b"u%d" % u)
            self.attempt("owner", lambda: os.chown(p, u, g))
        suid = self.file(b"own", b"suid1000")
        os.chown(suid, 1000, 1000)
        os.chmod(suid, 0o4755)

    def attributes(self):
        d = self.dir(b"xattr")
        user, many, empty, ro = (self.file(b"xattr", n) for n in (b"user", b"many", b"empty", b"ro"))
        self.attempt("user attribute", lambda: os.setxattr(user, "user.k", b"v\0\xff"))
        self.attempt("many", lambda: [os.setxattr(many, f"user.k{i}", self.dice.randbytes(30)) for i in range(30)])
        self.attempt("empty", lambda: os.setxattr(empty, "user.e", b""))
        self.attempt("of a directory", lambda: os.setxattr(d, "user.dir", b"d"))
        self.attempt("of a read-only file", lambda: os.setxattr(ro, "user.r", b"1"))
        os.chmod(ro, 0o444)
        if self.root:
            cap = self.file(b"xattr", b"cap")
            value = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
            self.attempt("capability", lambda: os.setxattr(cap, "security.capability", value))
            self.attempt("trusted", lambda: os.setxattr(user, "trusted.t", b"1"))
        self.acl("u:1000:rw,g:1000:r", self.file(b"xattr", b"acl"))
        self.acl("u:1000:rwx", self.dir(b"xattr", b"dacl"), b"-d")
        self.file(b"xattr", b"dacl", b"child")

    def acl(self, entry, path, *more):
        def run():
            if subprocess.run([b"setfacl", *more, b"-m", entry.encode(), path], stderr=subprocess.DEVNULL).returncode:
                raise OSError("setfacl refused")
        self.attempt("ACL", run)

    def holes(self, huge):
        self.dir(b"sparse")

        def sparse(name, size, extents):
            with open(self.at(b"sparse", name), "wb") as f:
                f.truncate(size)
                for at, length in extents:
                    f.seek(at)
                    f.write(self.dice.randbytes(length))

        mib = KIB**2
        sparse(b"allhole", 10 * mib, [])
        sparse(b"head", 10 * mib, [(9 * mib, 4096)])
        sparse(b"tail", 10 * mib, [(0, 4096)])
        sparse(b"comb", 8 * mib, [(i * 262_144, 4096) for i in range(32)])
        if huge:
            sparse(b"big", 5 << 30, [(5, 3), ((5 << 30) - 10, 10)])
        self.file(b"sparse", b"zeros", data=b"\0" * mib)  # written zeros, no hole

        def allocated():
            with open(self.at(b"sparse", b"prealloc"), "wb") as f:
                os.posix_fallocate(f.fileno(), 0, mib)
                f.write(b"abc")

        self.attempt("fallocate", allocated)

    def specials(self):
        if not self.root:
            return
        d = self.dir(b"special")
        os.mkfifo(os.path.join(d, b"fifo"), 0o620)
        os.mknod(os.path.join(d, b"null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mknod(os.path.join(d, b"blk"), stat.S_IFBLK | 0o600, os.makedev(7, 200))
        s, here = socket.socket(socket.AF_UNIX), os.open(".", os.O_RDONLY)
        os.chdir(d)
        s.bind("sock")  # a socket's path has only 108 bytes
        os.fchdir(here)

    def chance(self, extra):
        for i in range(extra):
            d = self.dir(b"rnd", *[b"%d" % self.dice.randrange(4) for _ in range(self.dice.randrange(4))])
            name = self.dice.randbytes(self.dice.randrange(1, 40)).replace(b"/", b"_").replace(b"\0", b"_") + b"%d" % i
            p = os.path.join(d, name)
            kind = self.dice.randrange(10)
            if kind == 0:
                os.symlink(self.dice.randbytes(9).replace(b"\0", b"_"), p)
                continue
            self.file(p, data=self.dice.randbytes(int(2 ** self.dice.uniform(0, 18))))
            if kind == 1:
                os.link(p, p + b"-too")
            if self.root and kind == 2:
                os.chown(p, self.dice.randrange(70_000), self.dice.randrange(70_000))
            if kind == 3:
                self.attempt("attribute", lambda: os.setxattr(p, "user.r", self.dice.randbytes(50)))
            os.chmod(p, self.dice.randrange(0o10000))
            os.utime(p, ns=(self.dice.randrange(2 * 10**18), self.dice.randrange(2 * 10**18)))

    def times(self):
        """Last, as everything above changes the times of directories."""
        self.dir(b"times")
        for n, t in ((b"ns", 1700000000123456789), (b"neg", -123456789012345678), (b"zero", 0),
                     (b"y2038", 2147483648 * 10**9 + 1), (b"y2106", 4294967297 * 10**9 + 999999999),
                     (b"y2400", 13569465600 * 10**9)):
            p = self.file(b"times", n)
            self.attempt("time", lambda: os.utime(p, ns=(t, t)))
        os.symlink(b"ns", self.at(b"times", b"ln"))
        os.utime(self.at(b"times", b"ln"), ns=(10**18 + 7, 10**18 + 7), follow_symlinks=False)
        for d in (b"times", b"xattr", b"hl", b"links", b"names", b"sizes"):
            if os.path.isdir(self.at(d)):
                os.utime(self.at(d), ns=(1500000000_000000001, 1500000000_000000001))


def grow(top, seed=1, extra=40, root=None, only_chance=False, deep=True, huge=True):
    """Makes the tree, or only the part that is up to chance; returns what the file system refused."""
    tree = Tree(top, seed, os.geteuid() == 0 if root is None else root)
    if not only_chance:
        tree.sizes_and_names()
        if deep:
            tree.deep()
        tree.links()
        tree.modes_and_owners()
        tree.attributes()
        tree.holes(huge)
        tree.specials()
    tree.chance(extra)
    tree.times()
    return tree.refused


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("dir")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--extra", type=int, default=40)
    o = a.parse_args()
    for line in grow(o.dir, o.seed, o.extra):
        print("refused: " + line, file=sys.stderr)
