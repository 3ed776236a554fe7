#!/usr/bin/env python3
"""Every fault at every call: run the tool once for each (call, fault) and see what it leaves and what it says.

  hang        does not end in time
  crash       ends by a signal or a panic, though nobody killed it
  false-ok    exit 0, and the destination is not what it should be
  torn        a name that is neither absent nor wholly old nor wholly new
  lost        content that is neither where it was nor where it goes
  touched     a copy changed its source, or something beside the work is different
  silent      exit other than 0, and not a word on standard error
  litter      exit other than 0 after one fault, and a name in the destination that belongs to neither tree
  rerun       after a kill, or after a disk that failed from one call on, the same command again does not end well;
              rerun-litter: it does, and leaves something
The mark that a move of a directory leaves until the same command has ended it is no litter; after any error that left
one the same command is run again, and then it must be gone.
"""
import errno as E, errno, os, random, shutil
from lab import Lab, Verdict, arguments, remove, skip, snapshot, write

WRITE = [E.EIO, E.ENOSPC, E.EDQUOT, E.EINTR]
SYNC = [E.EIO, E.ENOSPC, E.EDQUOT]
ERRORS = {  # what each call is known to fail with, in ways that a tool must tell apart
    "read": [E.EIO, E.EINTR], "pread64": [E.EIO, E.EINTR], "write": WRITE, "pwrite64": WRITE,
    "copy_file_range": [E.EIO, E.ENOSPC, E.EXDEV, E.EINVAL, E.ENOSYS, E.EOPNOTSUPP, E.EPERM, E.EINTR, E.ETXTBSY],
    "sendfile": [E.EIO, E.ENOSPC, E.EINVAL], "splice": [E.EIO, E.EINVAL],
    "ioctl": [E.EIO, E.ENOTTY, E.EOPNOTSUPP, E.EXDEV, E.EINVAL, E.EPERM, E.ENOSPC],
    "fsync": SYNC, "fdatasync": SYNC, "syncfs": SYNC, "close": [E.EIO, E.EINTR, E.ENOSPC],
    "openat": [E.EIO, E.EACCES, E.EMFILE, E.EINTR, E.ENOENT, E.ELOOP, E.ENOSPC],
    "openat2": [E.EIO, E.EACCES, E.EMFILE, E.EAGAIN, E.ENOSYS, E.ENOENT],
    "renameat": [E.EIO, E.ENOSPC, E.EXDEV, E.EACCES], "rename": [E.EIO, E.ENOSPC, E.EXDEV, E.EACCES],
    "renameat2": [E.EIO, E.ENOSPC, E.EXDEV, E.EINVAL, E.ENOSYS], "linkat": [E.EIO, E.EEXIST, E.ENOENT, E.EPERM],
    "mkdir": [E.EIO, E.ENOSPC, E.EACCES], "mkdirat": [E.EIO, E.ENOSPC, E.EACCES, E.EEXIST],
    "getdents64": [E.EIO, E.ENOENT], "lseek": [E.EIO, E.ENXIO, E.EINVAL], "ftruncate": [E.EIO, E.ENOSPC, E.EFBIG],
    "fallocate": [E.EIO, E.ENOSPC, E.EOPNOTSUPP, E.EINTR], "unlink": [E.EIO, E.EACCES],
    "unlinkat": [E.EIO, E.EACCES, E.EBUSY], "fchown": [E.EPERM, E.EIO], "fchmod": [E.EPERM, E.EIO],
    "fsetxattr": [E.ENOTSUP, E.ENOSPC, E.EPERM, E.EIO], "flistxattr": [E.ENOTSUP, E.EIO], "fgetxattr": [E.ENODATA, E.EIO],
    "statx": [E.EIO, E.EACCES, E.ENOENT, E.ENOSYS], "newfstatat": [E.EIO, E.EACCES, E.ENOENT],
}
OTHERWISE = [E.EIO, E.EACCES]
CAN_BE_SHORT = {"read", "pread64", "write", "pwrite64", "copy_file_range", "sendfile", "splice"}

ITEMS = ["a", "b", "d", "sp", "ln"]
# {s} is the source; {d} the destination, on the same file system for `near`, on another one for `far`.
COPY = {
    "cp": ["cp", "-a", "{items}", "{d}/"], "rsync": ["rsync", "-a", "{s}/", "{d}/"],
    "bcmr": ["{bcmr}", "copy", "--archive", "-q", "-j", "1", "{items}", "{d}/"],
}
MOVE = {"mv": ["mv", "-f", "{items}", "{d}/"], "bcmr": ["{bcmr}", "move", "-f", "-q", "-j", "1", "{items}", "{d}/"]}
SCENARIOS = {
    "copy": ("copy", False, COPY),
    "copy-plain": ("copy", False, {"cp": ["cp", "-r", "{items}", "{d}/"],
                                   "bcmr": ["{bcmr}", "copy", "-r", "-q", "-j", "1", "{items}", "{d}/"]}),
    "copy-sync": ("copy", False, {"rsync": ["rsync", "-a", "--fsync", "{s}/", "{d}/"],
                                  "bcmr": [*COPY["bcmr"][:3], "--sync", *COPY["bcmr"][3:]]}),
    "copy-verify": ("copy", True, {"bcmr": [*COPY["bcmr"][:3], "-V", *COPY["bcmr"][3:]]}),
    "copy-parallel": ("copy", False, {"bcmr": ["{bcmr}", "copy", "--archive", "-q", "-j", "4", "{items}", "{d}/"]}),
    "move-near": ("move", False, MOVE),
    "move-far": ("move", True, MOVE),
    "remove": ("remove", False, {"rm": ["rm", "-rf", "{s}"], "bcmr": ["{bcmr}", "remove", "-r", "-f", "-q", "{s}"]}),
}


class Work:
    """The two trees, laid anew before each run."""

    def __init__(self, lab, far):
        self.lab, self.top = lab, lab.path("w")
        self.src, self.dst = self.top + "/near/src", self.top + ("/far/dst" if far else "/near/dst")
        os.makedirs(self.top + "/near")
        if far:
            lab.mount(self.top + "/far", "-t", "tmpfs", "none")
        new, old, blob = lab.path("new"), lab.path("old"), os.urandom
        for name, size in (("a", 10), ("b", 200_000), ("d/c", 70_000), ("d/e/z", 0)):
            write(f"{new}/{name}", blob(size))
        with open(new + "/sp", "wb") as f:
            f.seek(1 << 20)
            f.write(blob(5000))
        os.symlink("a", new + "/ln")
        write(old + "/a", blob(333))
        write(old + "/b", blob(150_000))
        write(old + "/keep", b"keep")
        self.new, self.old = snapshot(new), snapshot(old)
        self.want = {**self.old, **self.new}

    def reset(self):
        for path, of in ((self.src, "new"), (self.dst, "old")):
            remove(path)
            shutil.copytree(self.lab.path(of), path, symlinks=True)

    def command(self, line, bcmr, items=ITEMS):
        out = []
        for word in line:
            if word == "{items}":
                out += [f"{self.src}/{i}" for i in items]
            else:
                out.append(word.format(s=self.src, d=self.dst, bcmr=bcmr))
        return out


def faults(calls, kinds):
    for index, (name, path) in enumerate(calls, 1):
        for kind in kinds:
            if kind == "error":
                yield from ((index, name, path, kind, e) for e in ERRORS.get(name, OTHERWISE))
            elif kind != "short" or name in CAN_BE_SHORT:
                yield index, name, path, kind, E.EIO


def is_mark(verb, name):
    last = name.rsplit("/", 1)[-1]
    return verb == "move" and last.startswith(".bcmr-") and last.endswith(".tree")


def judge(verb, work, src, dst, rc, err, kind="", error=0):
    """The violations of one run."""
    killed = kind.startswith("kill")
    found = set()
    new, old, want = work.new, work.old, work.want
    if rc == -99:
        found.add("hang")
    elif not killed and (rc < 0 or rc >= 128 or b"panicked" in err):
        found.add("crash")
    done = {"copy": (new, want), "move": ({}, want), "remove": ({}, old)}[verb]
    # Told that a name is not there, whoever wants it gone may believe it.
    gone = kind == "error" and error == E.ENOENT and verb != "copy"
    if rc == 0 and not killed and (dst != done[1] if gone else (src, dst) != done):
        found.add("false-ok")
    for k, v in dst.items():
        if v[0] == "file" and k in want and v not in (new.get(k), old.get(k)):
            found.add("torn")
    if any(k not in dst for k in old) or (verb == "move" and any(src.get(k) != v != dst.get(k) for k, v in new.items())):
        found.add("lost")
    if (verb == "copy" and src != new) or any(new.get(k) != v for k, v in src.items()) or (verb == "remove" and dst != old):
        found.add("touched")
    if rc not in (0, -99) and not killed and not err.strip():
        found.add("silent")
    if rc != 0 and not killed and kind != "error-from" and any(k not in want and not is_mark(verb, k) for k in dst):
        found.add("litter")
    return found


def main():
    a = arguments(__doc__)
    a.add_argument("--scenario", action="append", choices=SCENARIOS)
    a.add_argument("--kinds", default="error,error-from,short,kill-before,kill-after")
    a.add_argument("--max", type=int, help="so many faults of each scenario, chosen at random")
    o = a.parse_args()
    o.max = o.max or (150 if o.quick else None)
    verdict = Verdict("inject", o.tool, o.show)
    for scenario in o.scenario or SCENARIOS:
        verb, far, tools = SCENARIOS[scenario]
        if o.tool not in tools:
            continue
        with Lab(o) as lab:
            work = Work(lab, far)
            command = work.command(tools[o.tool], o.bcmr)
            work.reset()
            calls, (rc, err) = lab.calls(command, work.top)
            src, dst = snapshot(work.src) if os.path.exists(work.src) else {}, snapshot(work.dst)
            broken = judge(verb, work, src, dst, rc, err)
            if rc != 0 or broken:
                verdict.add("undisturbed", (rc, sorted(broken), err[-300:].decode(errors="replace")))
                verdict.say(scenario=scenario)
                continue
            jobs = list(faults(calls, o.kinds.split(",")))
            if o.max and len(jobs) > o.max:
                jobs = random.Random(1).sample(jobs, o.max)
            missed = good = 0
            for index, name, path, kind, error in jobs:
                work.reset()
                rc, err = lab.fault(command, work.top, index, kind, error)
                if rc == 250:
                    missed += 1
                    continue
                src, dst = snapshot(work.src) if os.path.lexists(work.src) else {}, snapshot(work.dst)
                found = judge(verb, work, src, dst, rc, err, kind, error)
                again = ""
                marked = any(is_mark(verb, k) for k in dst)
                if kind.startswith("kill") and rc == 137 or kind == "error-from" and rc != 0 or marked:
                    left = [i for i in ITEMS if os.path.lexists(f"{work.src}/{i}")]
                    if left and verb != "remove" or verb == "remove" and os.path.lexists(work.src):
                        rc2, err2 = lab.run(work.command(tools[o.tool], o.bcmr, left))
                        again = " then %d %s" % (rc2, err2[-120:].decode(errors="replace"))
                        dst = snapshot(work.dst)
                        goal = work.old if verb == "remove" else work.want
                        if rc2 != 0 or any(dst.get(k) != v for k, v in goal.items()):
                            found.add("rerun")
                        elif dst != goal:
                            found.add("rerun-litter")
                            again += " " + str([k for k in dst if k not in goal])
                good += rc == 0
                where = path.replace(work.top, "")
                for what in found:
                    verdict.add(what, (index, name, where, kind, errno.errorcode[error] if kind[:5] == "error" else "",
                                       "exit %d" % rc, err[-120:].decode(errors="replace") + again))
            verdict.say(scenario=scenario, calls=len(calls), runs=len(jobs), exit0=good, not_reached=missed)
    verdict.exit()


if os.geteuid() != 0:
    skip("mounting a second file system needs root")
main()
