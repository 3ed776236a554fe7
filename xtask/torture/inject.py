#!/usr/bin/env python3
"""Every fault at every call: run the tool once for each (call, fault) and see what it leaves and what it says.

  hang        does not end in time
  crash       ends by a signal or a panic, though the lab did not kill it
  false-ok    exit 0, and the destination is not what it should be; false-ok-attributes: in owner, mode, times, extended
              attributes or hard links alone, where all of these were asked for
  torn        a name that is neither absent nor wholly old nor wholly new
  lost        content that is neither where it was nor where it goes
  touched     a copy changed its source, or something beside the work is different
  silent      exit other than 0, and not a word on standard error
  litter      exit other than 0 after one fault, and a name in the destination that belongs to neither tree
  rerun       after any end but exit 0 the same command again does not end well; rerun-attributes as above;
              rerun-litter: it does, and leaves something
What a tool keeps so that the same command goes on (the mark of a move, an unfinished file with its session) is no litter
until that command has ended.
"""
import errno as E, errno, os, random, subprocess
import treecmp
from lab import Lab, Verdict, arguments, remove, skip, snapshot, write

WRITE = [E.EIO, E.ENOSPC, E.EDQUOT, E.EINTR, E.EFBIG, E.EAGAIN, E.EINVAL]
READ = [E.EIO, E.EINTR, E.EAGAIN, E.ESTALE, E.EINVAL]
SYNC = [E.EIO, E.ENOSPC, E.EDQUOT, E.EINVAL, E.EROFS]
# What each call is known to fail with, in ways that a tool must tell apart. Not what would be a lie of the kernel that no
# tool can notice: lseek's ENXIO (no data from here on), and names or attributes that a listing leaves out (flistxattr's
# ENOTSUP: the file system has none; fgetxattr's ENODATA: it went after it was listed).
ERRORS = {
    "read": READ, "pread64": READ, "write": WRITE, "pwrite64": WRITE,
    "copy_file_range": [E.EIO, E.ENOSPC, E.EXDEV, E.EINVAL, E.ENOSYS, E.EOPNOTSUPP, E.EPERM, E.EINTR, E.ETXTBSY],
    "sendfile": [E.EIO, E.ENOSPC, E.EINVAL], "splice": [E.EIO, E.EINVAL],
    "ioctl": [E.EIO, E.ENOTTY, E.EOPNOTSUPP, E.EXDEV, E.EINVAL, E.EPERM, E.ENOSPC],
    "fsync": SYNC, "fdatasync": SYNC, "syncfs": SYNC, "sync_file_range": [E.EIO, E.ESPIPE, E.ENOSYS],
    "close": [E.EIO, E.EINTR, E.ENOSPC],
    "openat": [E.EIO, E.EACCES, E.EMFILE, E.EINTR, E.ENOENT, E.ELOOP, E.ENOSPC, E.EEXIST, E.ENOMEM],
    "openat2": [E.EIO, E.EACCES, E.EMFILE, E.EAGAIN, E.ENOSYS, E.ENOENT],
    "renameat": [E.EIO, E.ENOSPC, E.EXDEV, E.EACCES], "rename": [E.EIO, E.ENOSPC, E.EXDEV, E.EACCES],
    "renameat2": [E.EIO, E.ENOSPC, E.EXDEV, E.EINVAL, E.ENOSYS, E.EEXIST],
    "linkat": [E.EIO, E.EEXIST, E.ENOENT, E.EPERM, E.EMLINK, E.EXDEV],
    "mkdir": [E.EIO, E.ENOSPC, E.EACCES], "mkdirat": [E.EIO, E.ENOSPC, E.EACCES, E.EEXIST, E.EMLINK],
    "symlinkat": [E.EIO, E.EACCES, E.EEXIST], "mknodat": [E.EIO, E.EPERM, E.EEXIST],
    "getdents64": [E.EIO, E.ENOENT], "lseek": [E.EIO, E.EINVAL], "ftruncate": [E.EIO, E.ENOSPC, E.EFBIG, E.EINVAL],
    "fallocate": [E.EIO, E.ENOSPC, E.EOPNOTSUPP, E.EINTR], "unlink": [E.EIO, E.EACCES],
    "unlinkat": [E.EIO, E.EACCES, E.EBUSY, E.EPERM, E.ENOTEMPTY], "flock": [E.EWOULDBLOCK, E.ENOLCK, E.ENOTSUP],
    "fchown": [E.EPERM, E.EIO], "fchownat": [E.EPERM, E.EIO], "fchmod": [E.EPERM, E.EIO],
    "utimensat": [E.EPERM, E.EACCES, E.EIO],
    "fsetxattr": [E.ENOTSUP, E.ENOSPC, E.EPERM, E.EIO], "flistxattr": [E.EIO, E.ENOMEM], "fgetxattr": [E.EIO, E.ENOMEM],
    "statx": [E.EIO, E.EACCES, E.ENOENT], "newfstatat": [E.EIO, E.EACCES, E.ENOENT],
    "io_uring_setup": [E.EPERM, E.ENOSYS, E.ENOMEM, E.EMFILE],
    "io_uring_enter": [E.EAGAIN, E.EBUSY, E.EINTR, E.ENOMEM, E.EIO], "io_uring_register": [E.EINVAL, E.ENOMEM, E.EPERM],
    "clone": [E.EAGAIN, E.ENOMEM], "clone3": [E.EAGAIN, E.ENOSYS, E.ENOMEM], "pipe2": [E.EMFILE, E.ENFILE],
    "getrandom": [E.ENOSYS, E.EINTR], "memfd_create": [E.EMFILE, E.ENOSYS], "fcntl": [E.EINVAL, E.EMFILE],
}
OTHERWISE = [E.EIO, E.EACCES]
# What a kernel does not have at the first call it does not have later; and where a killed run had it, the next one has.
LACKED = {"statx": E.ENOSYS}
CAN_BE_SHORT = {"read", "pread64", "write", "pwrite64", "copy_file_range", "sendfile", "splice"}
MAKES = {"write", "pwrite64", "openat", "mkdirat", "copy_file_range", "fsync", "fdatasync", "syncfs", "renameat", "renameat2",
         "ftruncate", "fallocate", "symlinkat", "linkat", "fchmod", "fsetxattr", "io_uring_enter"}
# Faults that stay: a second one can hinder the cleaning up after the first.
STAYS = ("error-from", "error-same", "error-write")
# One file more than a checkpoint, so that a session has something to say; and where one begins.
BIG, TREE, ONE = ["big"], ["a", "b", "d", "sp", "ln"], ["one"]
CS = ["-C", "--checkpoint-size", "4M"]


def bcmr(verb, *flags):
    return ["{bcmr}", verb, *flags, "-q", "-j", "1", "{items}", "{d}/"]


def face(name, *flags):
    """One of the programs that do as GNU's: nothing is asked of it that those do not know."""
    return {"bcmr": ["{bcmr}", name, *flags, "{items}", "{d}/"]}


class Scenario:
    """`far`: the destination is on another file system. `attributes`: all of them were asked for. `begun`: a run that was
    killed behind its second record came before. `in_place`: a name may hold half of it until the command has ended."""

    def __init__(self, verb, lines, far=False, items=TREE, attributes=False, begun=False, in_place=False):
        self.verb, self.lines, self.far, self.items = verb, lines, far, items
        self.attributes, self.begun, self.in_place = attributes, begun, in_place


def copy(*flags, **more):
    return Scenario("copy", {"bcmr": bcmr("copy", *flags)}, **more)


ARCHIVE = {"cp": ["cp", "-a", "{items}", "{d}/"], "rsync": ["rsync", "-aHAX", "--sparse", "{s}/", "{d}/"],
           "bcmr": bcmr("copy", "--archive")}
MOVE = {"mv": ["mv", "-f", "{items}", "{d}/"], "bcmr": bcmr("move", "-f")}
SCENARIOS = {
    "copy": Scenario("copy", ARCHIVE, attributes=True),
    "copy-far": Scenario("copy", ARCHIVE, far=True, attributes=True),
    "copy-plain": Scenario("copy", {"cp": ["cp", "-r", "{items}", "{d}/"], "bcmr": bcmr("copy", "-r")}),
    "copy-sync": Scenario("copy", {"rsync": ["rsync", "-aHAX", "--sparse", "--fsync", "{s}/", "{d}/"],
                                   "bcmr": bcmr("copy", "--archive", "--sync")}, attributes=True),
    "copy-verify": copy("--archive", "-V", far=True, attributes=True),
    "copy-verify-direct": copy("-r", "-V=direct"),
    "copy-parallel": Scenario("copy", {"bcmr": [w if w != "1" else "4" for w in ARCHIVE["bcmr"]]}, attributes=True),
    "copy-in-place": copy("-r", "--inplace", in_place=True),
    "large": copy(items=BIG), "large-far": copy(items=BIG, far=True), "large-in-place": copy("--inplace", items=BIG, in_place=True),
    "resumable": copy(*CS, items=BIG), "resumable-tree": copy("-r", *CS, items=[*TREE, "big"], far=True),
    "resume": copy(*CS, items=BIG, begun=True), "resume-far": copy(*CS, items=BIG, begun=True, far=True),
    "resume-strict": copy("-s", *CS[1:], items=BIG, begun=True), "resume-fast": copy("--fast", *CS, items=BIG, begun=True),
    "ring": copy("-r", "--engine=ring", "--async-threshold=0"),
    "ring-far": copy("--archive", "--engine=ring", "--async-threshold=0", far=True, attributes=True),
    "ring-large": copy("--engine=ring", "--async-threshold=0", items=BIG),
    "face-tree": Scenario("copy", face("cp", "-a"), far=True),
    "face-one": Scenario("copy", face("cp", "-p"), items=ONE),
    "face-sparse": Scenario("copy", face("cp", "--sparse=always"), items=ONE),
    "move-near": Scenario("move", MOVE, attributes=True),
    "move-far": Scenario("move", MOVE, far=True, attributes=True),
    "move-merge": Scenario("move", {"bcmr": bcmr("move", "--merge", "-f")}, far=True, attributes=True),
    "remove": Scenario("remove", {"rm": ["rm", "-rf", "{s}"], "bcmr": ["{bcmr}", "remove", "-r", "-f", "-q", "{s}"]}),
}


class Work:
    """The two trees, laid anew before each run."""

    def __init__(self, lab, scenario):
        self.lab, self.top, self.scenario, self.interrupted_by = lab, lab.path("w"), scenario, None
        self.src, self.dst = self.top + "/near/src", self.top + ("/far/dst" if scenario.far else "/near/dst")
        os.makedirs(self.top + "/near")
        if scenario.far:
            lab.mount(self.top + "/far", "-t", "tmpfs", "none")
        new, old, blob = lab.path("new"), lab.path("old"), os.urandom
        if "a" in scenario.items:
            self.tree(new)
            write(old + "/a", blob(333))
            write(old + "/b", blob(150_000))
        if "big" in scenario.items:
            write(new + "/big", blob((9 << 20) + 777))
            write(old + "/big", blob(300_005))
        if "one" in scenario.items:
            write(new + "/one", blob(5000) + bytes(8000) + blob(1000))
        write(old + "/keep", b"keep")
        for n, (root, dirs, files) in enumerate(os.walk(new, topdown=False)):
            for name in files + ["."]:
                os.utime(os.path.join(root, name), ns=(10**18 + n, 10**18 + n), follow_symlinks=False)
        self.new, self.old = snapshot(new), snapshot(old)
        self.want = {**self.old, **self.new}

    @staticmethod
    def tree(new):
        blob = os.urandom
        for name, size in (("a", 10), ("b", 200_000), ("d/c", 70_000), ("d/e/z", 0)):
            write(f"{new}/{name}", blob(size))
        with open(new + "/sp", "wb") as f:
            f.seek(1 << 20)
            f.write(blob(5000))
        os.symlink("a", new + "/ln")
        os.link(new + "/d/c", new + "/d/too")
        os.setxattr(new + "/d/c", "user.of", b"c")
        os.chmod(new + "/d/e", 0o750)
        os.chmod(new + "/b", 0o604)

    def reset(self):
        for path, of in ((self.src, "new"), (self.dst, "old")):
            remove(path)
            subprocess.run(["cp", "-a", self.lab.path(of), path], check=True)
        if self.interrupted_by:
            command, index = self.interrupted_by
            self.lab.fault(command, self.top, index, "kill-before")

    def interrupt(self, command):
        """From now on each `reset` ends with this command, killed behind the sync of its second record."""
        calls, _ = self.lab.calls(command, self.top)
        synced = [i for i, (name, path) in enumerate(calls, 1) if name == "fdatasync" and path.endswith(".session")]
        self.interrupted_by = command, synced[1] + 1

    def command(self, line, bcmr, items=None):
        out = []
        for word in line:
            if word == "{items}":
                out += [f"{self.src}/{i}" for i in items or self.scenario.items]
            else:
                out.append(word.format(s=self.src, d=self.dst, bcmr=bcmr))
        return out

    def attributes_lost(self):
        """What of the source's attributes the destination has not; it may have more than the source. A hole that the kernel
        did not tell of is none of them: all of the file was read and is there."""
        if not self.scenario.attributes:
            return []
        found = treecmp.compare(self.lab.path("new"), self.dst)
        return [(what, key, values) for what, key, values in found if what not in ("extra", "holes lost")]


def faults(calls, kinds, begun):
    called = set(LACKED if begun else ())
    for index, (name, path) in enumerate(calls, 1):
        if name in LACKED and name not in called and "error-same" in kinds:
            yield index, name, path, "error-same", LACKED[name]
        called.add(name)
        for kind in kinds:
            if kind == "error":
                yield from ((index, name, path, kind, e) for e in ERRORS.get(name, OTHERWISE))
            elif kind in ("short", "zero"):
                if name in CAN_BE_SHORT:
                    yield index, name, path, kind, E.EIO
            elif kind == "error-write":
                if name in MAKES:
                    yield from ((index, name, path, kind, e) for e in (E.ENOSPC, E.EROFS))
            else:
                yield index, name, path, kind, E.EIO


def is_kept(name):
    """What our program keeps so that the same command goes on."""
    last = name.rsplit("/", 1)[-1]
    return last.startswith(".bcmr-") and last.endswith((".tree", ".part", ".session"))


def judge(work, src, dst, rc, err, kind="", error=0):
    """The violations of one run."""
    verb, killed = work.scenario.verb, kind.startswith("kill")
    found = set()
    new, old, want = work.new, work.old, work.want
    if rc == -99:
        found.add("hang")
    elif not killed and (rc < 0 or rc >= 128 or b"panicked" in err):
        found.add("crash")
    done = {"copy": (new, want), "move": ({}, want), "remove": ({}, old)}[verb]
    # Told that a name is not there, a tool that wants it gone may believe it: what it moves or removes, or its own mark.
    gone = kind == "error" and error == E.ENOENT
    if gone and verb == "copy":
        dst = {k: v for k, v in dst.items() if k in want or not is_kept(k)}
    if rc == 0 and not killed:
        if dst != done[1] if gone and verb != "copy" else (src, dst) != done:
            found.add("false-ok")
        elif verb != "remove" and work.attributes_lost():
            found.add("false-ok-attributes")
    for k, v in dst.items():
        if v[0] == "file" and k in want and v not in (new.get(k), old.get(k)) and not work.scenario.in_place:
            found.add("torn")
    if any(k not in dst for k in old) or (verb == "move" and any(src.get(k) != v != dst.get(k) for k, v in new.items())):
        found.add("lost")
    if (verb == "copy" and src != new) or any(new.get(k) != v for k, v in src.items()) or (verb == "remove" and dst != old):
        found.add("touched")
    if rc not in (0, -99) and not killed and not err.strip():
        found.add("silent")
    if rc != 0 and not killed and kind not in STAYS and any(k not in want and not is_kept(k) for k in dst):
        found.add("litter")
    return found


def snapshots(work):
    return (snapshot(work.src) if os.path.lexists(work.src) else {}), snapshot(work.dst)


def rerun(lab, work, line, bcmr):
    """(violations, words) of the same command again."""
    verb = work.scenario.verb
    left = [i for i in work.scenario.items if os.path.lexists(f"{work.src}/{i}")]
    if not (os.path.lexists(work.src) if verb == "remove" else left):
        return set(), ""
    rc, err = lab.run(work.command(line, bcmr, left))
    src, dst = snapshots(work)
    words, goal, found = " then %d %s" % (rc, err[-160:].decode(errors="replace")), work.old if verb == "remove" else work.want, set()
    wrong = [k for k, v in goal.items() if dst.get(k) != v]
    if rc != 0 or wrong or (verb != "copy" and src):
        found.add("rerun")
        words += str(wrong[:3])
    elif dst != goal:
        found.add("rerun-litter")
        words += str([k for k in dst if k not in goal][:3])
    elif lost := work.attributes_lost() if verb != "remove" else []:
        found.add("rerun-attributes")
        words += str(lost[:2])
    return found, words


def main():
    a = arguments(__doc__)
    a.add_argument("--scenario", action="append", choices=SCENARIOS)
    a.add_argument("--kinds", default="error,error-from,error-same,error-write,short,zero,kill-before,kill-after")
    a.add_argument("--max", type=int, help="so many faults of each scenario, chosen at random")
    a.add_argument("--seed", type=int, default=1, help="of that choice")
    o = a.parse_args()
    o.max = o.max or (150 if o.quick else None)
    verdict = Verdict("inject", o.tool, o.show)
    for name in o.scenario or SCENARIOS:
        scenario = SCENARIOS[name]
        if o.tool not in scenario.lines:
            continue
        line = scenario.lines[o.tool]
        with Lab(o) as lab:
            work = Work(lab, scenario)
            command = work.command(line, o.bcmr)
            work.reset()
            if scenario.begun:
                work.interrupt(command)
                work.reset()
                if not any(is_kept(k) for k in snapshot(work.dst)):
                    verdict.add("undisturbed", "the killed run has left nothing to go on with")
                    verdict.say(scenario=name)
                    continue
            calls, (rc, err) = lab.calls(command, work.top)
            broken = judge(work, *snapshots(work), rc, err)
            if rc != 0 or broken:
                more = str(work.attributes_lost()[:3])
                verdict.add("undisturbed", (rc, sorted(broken), err[-300:].decode(errors="replace"), more))
                verdict.say(scenario=name)
                continue
            jobs = list(faults(calls, o.kinds.split(","), scenario.begun))
            if name.startswith("face-"):
                # A directory that has gone has nothing in it, as for all that list by the C library (readdir(3)).
                jobs = [job for job in jobs if (job[1], job[4]) != ("getdents64", E.ENOENT)]
            if o.max and len(jobs) > o.max:
                jobs = random.Random(o.seed).sample(jobs, o.max)
            missed = good = 0
            for index, call, path, kind, error in jobs:
                work.reset()
                rc, err = lab.fault(command, work.top, index, kind, error)
                if rc == 250:
                    missed += 1
                    continue
                found, again, lost = judge(work, *snapshots(work), rc, err, kind, error), "", work.attributes_lost()
                if rc != 0:
                    more, again = rerun(lab, work, line, o.bcmr)
                    found |= more
                good += rc == 0
                where = path.replace(work.top, "")
                if "false-ok-attributes" in found:
                    again = str(lost[:2])
                for what in found:
                    verdict.add(what, (index, call, where, kind, errno.errorcode[error] if kind[:5] == "error" else "",
                                       "exit %d" % rc, err[-160:].decode(errors="replace") + again))
            verdict.say(scenario=name, calls=len(calls), runs=len(jobs), exit0=good, not_reached=missed)
    verdict.exit()


if os.geteuid() != 0:
    skip("mounting a second file system needs root")
main()
