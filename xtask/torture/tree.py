#!/usr/bin/env python3
"""Every attribute: nasty trees are copied on and between file systems, and two judges compare, ours and rsync.

  differs   an attribute that is not the source's, by treecmp
  rsync     rsync -aHAXn --checksum --delete --itemize-changes would still change something
  check     bcmr check of the same arguments says other than `same`
  exit      the copy did not end with exit 0
"""
import os, shutil, subprocess
import treecmp, treegen
from lab import Lab, Verdict, arguments, remove, skip

LINES = {
    "cp": ["cp", "-a", "{s}/.", "{d}/"], "rsync": ["rsync", "-aHAX", "--sparse", "{s}/", "{d}/"],
    "bcmr": ["{bcmr}", "copy", "--archive", "-q", "-T", "{s}", "{d}"],
    "bcmr-serial": ["{bcmr}", "copy", "--archive", "-q", "-j", "1", "-T", "{s}", "{d}"],
    "bcmr-verify": ["{bcmr}", "copy", "--archive", "-V", "--sync", "-q", "-T", "{s}", "{d}"],
}


def place(lab, fs):
    """A mounted file system of that type, or None where it cannot be made."""
    at = lab.path(fs)
    if fs == "tmpfs":
        lab.mount(at, "-t", "tmpfs", "none")
        return at
    if not shutil.which("mkfs." + fs):
        print("NOT RUN: mkfs.%s is not installed" % fs, flush=True)
        return None
    image = lab.path(fs + ".img")
    subprocess.run(["truncate", "-s", "2G", image], check=True)
    subprocess.run(["mkfs." + fs, "-q", image], check=True, capture_output=True)
    lab.mount(at, "-o", "loop", image)
    return at


def main():
    a = arguments(__doc__)
    a.add_argument("--trees", type=int, help="random trees for each pair of file systems")
    a.add_argument("--seed", type=int, default=1)
    o = a.parse_args()
    trees = o.trees or (3 if o.quick else 25)
    verdict = Verdict("tree", o.tool, o.show)
    with Lab(o) as lab:
        at = {fs: p for fs in ("tmpfs", "ext4", "xfs", "btrfs") if (p := place(lab, fs))}
        pairs = [(fs, fs) for fs in at] + [(x, y) for x, y in (("ext4", "tmpfs"), ("xfs", "btrfs"), ("tmpfs", "ext4")) if x in at and y in at]
        for pair, (x, y) in enumerate(pairs):
            src, dst, refused, runs = at[x] + "/src", at[y] + "/dst", [], 0
            for n in range(trees + 2):
                remove(src)
                # The first is the whole set; the second leaves out what is too deep for rsync to look at.
                # A file over 4 GiB is read whole by every judge, so it is not in every tree.
                huge = n == 0 and not (o.quick and pair)
                refused += treegen.grow(src, o.seed + n, 60, only_chance=n > 1, deep=n == 0, huge=huge)
                for tool, line in LINES.items():
                    if tool.split("-")[0] != o.tool or n > 1 and tool != o.tool:
                        continue
                    remove(dst)
                    os.makedirs(dst)
                    command = [w.format(s=src, d=dst, bcmr=o.bcmr) for w in line]
                    rc, err = lab.run(command, timeout=300)
                    runs += 1
                    if rc:
                        verdict.add("exit", (tool, "seed %d" % (o.seed + n), rc, err[-300:].decode(errors="replace")))
                    for what, key, values in treecmp.compare(src, dst):
                        verdict.add("differs", (tool, "seed %d" % (o.seed + n), what, key[-60:], values))
                    if n and shutil.which("rsync"):
                        judge = ["rsync", "-aHAXn", "--checksum", "--delete", "--itemize-changes", src + "/", dst + "/"]
                        p = subprocess.run(judge, capture_output=True)
                        for change in p.stdout.splitlines():
                            verdict.add("rsync", (tool, "seed %d" % (o.seed + n), change))
                    if tool == "bcmr":
                        rc, err = lab.run([o.bcmr, "check", "--archive", "--hash", "-q", "-T", src, dst], timeout=300)
                        if rc:
                            verdict.add("check", (tool, "seed %d" % (o.seed + n), rc, err[-200:].decode(errors="replace")))
            verdict.say(source=x, destination=y, runs=runs, refused=sorted(set(refused)))
            remove(src)
            remove(dst)
    verdict.exit()


if os.geteuid() != 0:
    skip("owners, special files and mounts need root")
main()
