#!/usr/bin/env python3
"""No room: the destination is limited to every size from nothing to enough, in five ways.

  tmpfs    size of the file system        inodes   number of its inodes      rlimit   RLIMIT_FSIZE (EFBIG, SIGXFSZ)
  ext4     an image filled up but for N   qgroup   a btrfs quota (EDQUOT)

  false-ok, torn, lost, litter, silent, signal   as in inject.py
  rerun   once there is room, the same command again does not end well; rerun-litter: it does, and leaves something
"""
import os, resource, shutil, subprocess
from lab import Lab, Verdict, arguments, skip, snapshot, write

LINES = {
    "cp": ["cp", "-a", "{s}/a", "{s}/b", "{s}/d", "{d}/"], "rsync": ["rsync", "-a", "{s}/", "{d}/"],
    "bcmr": ["{bcmr}", "copy", "--archive", "-q", "{s}/a", "{s}/b", "{s}/d", "{d}/"],
    "bcmr-plain": ["{bcmr}", "copy", "-r", "-q", "{s}/a", "{s}/b", "{s}/d", "{d}/"],
}
HOWS = ["tmpfs", "inodes", "rlimit", "ext4", "qgroup"]
ENOUGH = 1_200_000


def sh(text):
    subprocess.run(text, shell=True, check=True, capture_output=True)


class Room:
    """A mounted place with room for N bytes, and a way to make it larger."""

    def __init__(self, lab, how):
        self.lab, self.how, self.at, self.image = lab, how, lab.path("m"), lab.path("image")
        os.makedirs(self.at)
        self.dst = self.at + ("/v/dst" if how == "qgroup" else "/dst")
        if how == "ext4":
            sh(f"truncate -s 16M {self.image} && mkfs.ext4 -q -F -m 0 {self.image}")
        if how == "qgroup":
            sh(f"truncate -s 256M {self.image} && mkfs.btrfs -q {self.image}")

    def points(self, step):
        return range(1, 20) if self.how == "inodes" else range(0, ENOUGH, step)

    def open(self, n, old):
        """Mounts, lays `old` as the destination, and leaves room for about n; returns what the tool's process sets."""
        at = self.at
        if self.how == "tmpfs":
            self.lab.mount(at, "-t", "tmpfs", "-o", f"size={max(n, 4096) + 217_088}", "none")
        elif self.how == "inodes":
            self.lab.mount(at, "-t", "tmpfs", "-o", f"nr_inodes={n + 4}", "none")
        elif self.how == "rlimit":
            self.lab.mount(at, "-t", "tmpfs", "none")
        else:
            self.lab.mount(at, "-o", "loop", self.image)
        if self.how == "ext4":
            sh(f"rm -rf {at}/dst {at}/filler")
        if self.how == "qgroup":
            sh(f"btrfs quota enable {at} || true; [ -d {at}/v ] && btrfs subvolume delete -c {at}/v; "
               f"btrfs subvolume create {at}/v")
        shutil.copytree(old, self.dst)
        if self.how == "ext4":
            f = os.statvfs(at)
            free = f.f_bfree * f.f_bsize
            if free > n:
                subprocess.run(f"head -c {free - n} /dev/zero > {at}/filler; sync -f {at}", shell=True, stderr=subprocess.DEVNULL)
        if self.how == "qgroup":
            sh(f"sync -f {at}; btrfs qgroup limit {n + 400_000} {at}/v")
        if self.how == "rlimit":
            return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n, n))

    def widen(self):
        at = self.at
        sh({"tmpfs": f"mount -o remount,size=64M {at}", "inodes": f"mount -o remount,nr_inodes=1000 {at}", "rlimit": "true",
            "ext4": f"rm -f {at}/filler", "qgroup": f"btrfs qgroup limit none {at}/v"}[self.how])

    def close(self):
        self.lab.unmount(self.at)


def main():
    a = arguments(__doc__)
    a.add_argument("--how", action="append", choices=HOWS)
    a.add_argument("--step", type=int)
    o = a.parse_args()
    step = o.step or (131_072 if o.quick else 16_384)
    verdict = Verdict("space", o.tool, o.show)
    for how in o.how or HOWS:
        for tool, line in LINES.items():
            if tool.split("-")[0] != o.tool:
                continue
            with Lab(o) as lab:
                src, old_dir = lab.path("src"), lab.path("old")
                for name, size in (("a", 300_000), ("b", 5000), ("d/c", 400_000), ("d/z", 100)):
                    write(f"{src}/{name}", os.urandom(size))
                write(old_dir + "/a", os.urandom(200_000))
                write(old_dir + "/b", b"old b")
                new, old, room = snapshot(src), snapshot(old_dir), Room(lab, how)
                want = {**old, **new}
                command = [w.format(s=src, d=room.dst, bcmr=o.bcmr) for w in line]
                tried = good = 0
                for n in room.points(step):
                    try:
                        before = room.open(n, old_dir)
                    except OSError:  # not even the old tree fits; copytree's Error is one
                        room.close()
                        continue
                    rc, err = lab.run(command, timeout=60, preexec_fn=before)
                    tried, good, got, found = tried + 1, good + (rc == 0), snapshot(room.dst), set()
                    if rc == 0 and got != want:
                        found.add("false-ok")
                    if any(v[0] == "file" and k in want and v not in (new.get(k), old.get(k)) for k, v in got.items()):
                        found.add("torn")
                    if any(k not in got for k in old) or snapshot(src) != new:
                        found.add("lost")
                    if any(k not in want for k in got):
                        found.add("litter")
                    if rc and not err.strip():
                        found.add("silent")
                    if rc < 0 or rc >= 128 or b"panicked" in err:
                        found.add("signal")
                    if rc:
                        room.widen()
                        rc2, err2 = lab.run(command, timeout=60)
                        again = snapshot(room.dst)
                        if rc2 or any(again.get(k) != v for k, v in want.items()):
                            found.add("rerun")
                            err += err2
                        elif again != want:
                            found.add("rerun-litter")
                    for what in found:
                        verdict.add(what, (n, "exit %d" % rc, err[-160:].decode(errors="replace")))
                    room.close()
                verdict.say(how=how, line=tool, limits=tried, exit0=good)
    verdict.exit()


if os.geteuid() != 0:
    skip("mounting needs root")
main()
