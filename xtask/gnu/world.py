"""The tree that every line meets: made anew for each run, in one order, so that inodes and listings are alike.

What is mounted in it stays mounted, in a mount namespace of this process: a file system of its own, one that is nearly full,
and one that may not be written. `m` leads to a directory on the file system of /var/tmp.
"""
import ctypes
import os
import shutil
import socket
import stat
import struct
import subprocess
import tempfile

NOBODY = 65534
OLD = 1_000_000_000
CLONE_NEWNS = 0x20000
MS_RDONLY, MS_REMOUNT, MS_REC, MS_PRIVATE = 1, 32, 16384, 1 << 18
MOUNTS = ("mp", "full", "ro")
# A number that no driver has, so that opening it fails.
NO_DEVICE = os.makedev(240, 99)
NULL_DEVICE = os.makedev(1, 3)

# Names as the file system has them; bytes that are no text come as surrogates.
ODD_NAMES = ["it's", "new\nline", "sp ace", "\u00e9", "f~", "foreign", "co:lon", "ctl\x01\x7f", "bad\udcff", "-dash", "tab\tx", "w*",
             "$v", "back\\slash", 'quo"te', "#h", "~t"]

libc = ctypes.CDLL(None, use_errno=True)


def alone():
    """A mount namespace of our own, which ends with this process."""
    if libc.unshare(CLONE_NEWNS) != 0:
        return False
    return libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0


def mount(kind, path, flags, options):
    if libc.mount(kind.encode(), os.fsencode(path), kind.encode(), flags, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), path)


def acl(owner, user1, group, mask, other):
    """The kernel's form (acl(5)): a version, then tag, permissions and id of each entry."""
    none = 0xFFFFFFFF
    entries = [(1, owner, none), (2, user1, 1), (4, group, none), (0x10, mask, none), (0x20, other, none)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def stamp(name, age=0, follow=True):
    os.utime(name, ns=((OLD + age) * 10**9 + 7, (OLD + age) * 10**9 + 123456789), follow_symlinks=follow)


def put(name, text=None, mode=0o644, age=0):
    with open(name, "wb") as file:
        file.write((text if text is not None else name).encode("utf-8", "surrogateescape"))
    os.chmod(name, mode)
    stamp(name, age)


class World:
    def __init__(self):
        self.base = tempfile.mkdtemp(prefix="twins-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.other = tempfile.mkdtemp(prefix="twins-far-", dir="/var/tmp")
        # Of its own, so that its nodes are devices.
        # Room for our program and for what a line makes; one that goes on without end does not get all of the memory.
        mount("tmpfs", self.base, 0, "mode=755,size=1g,nr_inodes=500k")
        os.chmod(self.other, 0o755)
        self.top, self.far = os.path.join(self.base, "w"), os.path.join(self.other, "w")
        # What each of the two trees is before anything is run.
        self.known = {}
        os.mkdir(self.top)
        for name, options in zip(MOUNTS, ("mode=755,size=8m", "mode=755,size=64k", "mode=755")):
            os.mkdir(os.path.join(self.top, name))
            mount("tmpfs", os.path.join(self.top, name), 0, options)
        os.chdir(os.path.join(self.top, "ro"))
        put("f", "cannot change\n", age=400)
        os.mkdir("d")
        put("d/f", "nor this\n", age=401)
        stamp("d")
        stamp(".")
        os.chdir("/")
        mount("tmpfs", os.path.join(self.top, "ro"), MS_REMOUNT | MS_RDONLY, "mode=755")

    def program(self, bcmr):
        mine = os.path.join(self.base, "bcmr")
        shutil.copy(bcmr, mine)
        os.chmod(mine, 0o755)
        return mine

    def clear(self):
        os.chdir("/")
        for name in MOUNTS:
            libc.umount2(os.fsencode(os.path.join(self.top, name)), 2)
        libc.umount2(os.fsencode(self.base), 2)
        os.rmdir(self.base)
        remove([self.other])

    def empty(self):
        os.chdir("/")
        paths = [os.path.join(self.top, name) for name in os.listdir(self.top) if name not in MOUNTS]
        for path in (os.path.join(self.top, name) for name in MOUNTS if name != "ro"):
            paths += [os.path.join(path, below) for below in os.listdir(path)]
            # A line may have changed what is mounted there itself, and what is made in it would have part of that.
            os.chown(path, 0, 0)
            os.chmod(path, 0o755)
        remove([*paths, self.far])

    def build(self, root):
        self.empty()
        me = 0 if root else NOBODY
        os.mkdir(self.far)
        os.chmod(self.top, 0o755)
        os.chdir(self.top)
        fill(self.top, self.far)
        for base in (self.top, self.far):
            for folder, dirs, files in os.walk(base, topdown=False):
                if folder.startswith(os.path.join(self.top, "ro")):
                    continue
                for name in files + dirs:
                    if name == "ro" and folder == self.top:
                        continue
                    path = os.path.join(folder, name)
                    os.chown(path, me, me, follow_symlinks=False)
                    if os.path.islink(path):
                        os.utime(path, ns=(OLD * 10**9, OLD * 10**9), follow_symlinks=False)
                os.chown(folder, me, me)
                os.utime(folder, ns=(OLD * 10**9, OLD * 10**9))
        after(me)
        os.chdir("/")


def remove(paths):
    """However deep they are."""
    subprocess.run(["/bin/rm", "-rf", "--", *map(os.fsencode, paths)], check=True)


def fill(top, far):
    put("f", "content of f\n", age=100)
    put("g", "content of g, longer\n", age=50)
    put("e", "", age=10)
    put("r", mode=0o444, age=20)
    put("x", mode=0o755, age=30)
    put("s", age=40)
    put("h1", "linked", age=60)
    os.link("h1", "h2")
    put("sp", "")
    with open("sp", "r+b") as file:
        file.seek(300_000)
        file.write(b"end")
        file.truncate(700_000)
    stamp("sp")
    put("xa", age=70)
    os.setxattr("xa", "user.note", b"kept")
    put("ac", age=80)
    os.setxattr("ac", "system.posix_acl_access", acl(6, 6, 4, 6, 4))
    for name in ODD_NAMES:
        put(name, age=5)
    put("ur", age=6)
    os.link("ur", "ur2")
    os.mkdir("d")
    put("d/f", "inner f\n", age=200)
    put("d/g", "inner g\n", mode=0o600, age=1)
    os.mkdir("d/sub")
    put("d/sub/f", "deep f\n", age=3)
    os.symlink("../f", "d/sub/lf")
    os.mkdir("d/sub/deep")
    os.link("d/f", "d/h3")
    os.mkfifo("d/pipe")
    os.mkdir("d2")
    put("d2/f", "other f\n", age=150)
    put("d2/sub", "a file where d has a directory\n")
    os.link("h1", "d2/h4")
    os.mkdir("ed")
    os.mkdir("ad")
    put("ad/f", "below an ACL\n")
    os.mkdir("nw")
    put("nw/f", "cannot go\n", age=9)
    os.mkdir("nw/sub")
    os.mkdir("nr")
    put("nr/f")
    os.mkdir("nx")
    put("nx/f")
    # One with what ordinary trees have and what they seldom have.
    os.mkdir("t")
    put("t/b", age=11)
    put("t/a", "aa", mode=0o640, age=12)
    os.link("t/b", "t/b2")
    os.mkdir("t/nr")
    put("t/nr/f")
    os.mkdir("t/nw")
    put("t/nw/f", age=13)
    put("t/ur", age=14)
    os.symlink("a", "t/l")
    os.mkdir("t/deep")
    os.mkdir("t/deep/er")
    put("t/deep/er/ur", age=15)
    put("t/deep/er/f", age=16)
    put("t/s", age=17)
    put("t/xa", age=18)
    os.setxattr("t/xa", "user.note", b"kept too")
    put("t/foreign", age=19)
    os.mkdir("st")
    put("st/theirs", age=21)
    put("st/mine", age=22)
    os.mkdir("sg")
    put("sg/f", age=23)
    os.mkdir("sg/sub")
    os.symlink("f", "lf")
    os.symlink("d", "ld")
    os.symlink("nowhere", "dang")
    os.symlink("loop", "loop")
    os.symlink("h1", "lh")
    os.symlink(os.path.join(top, "g"), "labs")
    os.symlink("co:lon", "lc")
    os.mkfifo("p")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sk")
    os.mkdir("nodes")
    os.mknod("nodes/null", stat.S_IFCHR | 0o666, NULL_DEVICE)
    os.mknod("nodes/none", stat.S_IFBLK | 0o600, NO_DEVICE)
    for name in ("null", "none"):
        os.chmod("nodes/" + name, 0o666 if name == "null" else 0o600)
        stamp("nodes/" + name)
    for name in ("p", "d/pipe", "sk"):
        stamp(name)
    os.symlink(far, "m")
    put("m/f", "far f\n", age=300)
    os.mkdir("m/d")
    put("m/d/f", "far inner f\n", age=301)
    os.link("m/f", "m/h5")
    put("mp/f", "mounted f\n", age=310)
    os.mkdir("mp/d")
    put("mp/d/f", "mounted inner f\n", age=311)
    os.mkdir("mp/ed")
    put("full/big", "x" * 40_000, age=320)
    put("full/f", "small\n", age=321)
    os.mkdir("full/ed")


def after(me):
    """What chown would undo, and what only its owner may do."""
    for name in ("mp", "full"):
        os.chmod(name, 0o755)
    os.chmod("s", 0o4755)
    os.chmod("t/s", 0o4755)
    os.chown("foreign", 1, 1)
    os.chown("t/foreign", 1, 1)
    os.chmod("ad", 0o750)
    os.setxattr("ad", "system.posix_acl_access", acl(7, 5, 5, 5, 0))
    os.setxattr("ad", "system.posix_acl_default", acl(7, 6, 5, 7, 0))
    os.chown("st", 1, 1)
    os.chmod("st", 0o1777)
    os.chown("st/theirs", 1, 1)
    os.chmod("st/theirs", 0o666)
    # A user hands only a group down that is the own one.
    os.chown("sg", me, 1 if me == 0 else me)
    os.chmod("sg", 0o2775)
    for name, mode in (("nw", 0o555), ("nr", 0), ("nx", 0o644), ("ur", 0), ("t/nr", 0), ("t/nw", 0o555), ("t/ur", 0), ("t/deep/er/ur", 0)):
        os.chmod(name, mode)
    os.utime("m/d", ns=(OLD * 10**9, OLD * 10**9))
