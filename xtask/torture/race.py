#!/usr/bin/env python3
"""A hostile exchange at every call: the tool is stopped before each file-system call, one name is exchanged for a link
that leads outside (or for a FIFO), and the tool goes on. Nothing outside may be read, written, made or removed.

  outside-removed, outside-made, outside-content, outside-mode, outside-time   what happened to the tree outside
  secret-copied   something from outside stands in the destination
  hang            the tool waits for ever
  crash           ends by a signal or a panic

--spin SECONDS runs an attacker that exchanges the names as fast as it can instead, as real ones do.
"""
import os, stat, subprocess, time
from lab import Lab, Verdict, arguments, remove, skip, snapshot, write

SECRET = b"TOP SECRET %d\n" % os.getpid()
BCMR = ["{bcmr}", "copy", "--archive", "-q", "-j", "1", "{s}/d", "{s}/top", "{d}/"]
COPY = {
    "cp": ["cp", "-a", "{s}/d", "{s}/top", "{d}/"], "rsync": ["rsync", "-a", "{s}/", "{d}/"], "bcmr": BCMR,
    "bcmr-parallel": [*BCMR[:4], "-j", "4", *BCMR[6:]], "bcmr-plain": ["{bcmr}", "copy", "-r", "-q", "-j", "1", *BCMR[6:]],
    "bcmr-verify": [*BCMR[:4], "-V", "--sync", *BCMR[4:]],
}
MOVE = {"mv": ["mv", "-f", "{s}/d", "{s}/top", "{d}/"], "bcmr": ["{bcmr}", "move", "-f", "-q", "-j", "1", "{s}/d", "{s}/top", "{d}/"]}
REMOVE = {"rm": ["rm", "-rf", "{s}"], "bcmr": ["{bcmr}", "remove", "-r", "-f", "-q", "-j", "1", "{s}"]}

# scenario: (tools, on two file systems, the name that is exchanged, what for)
SCENARIOS = {
    "src-dir": (COPY, False, "near/src/d", "dir"), "src-deep": (COPY, False, "near/src/d/e", "deep"),
    "src-file": (COPY, False, "near/src/d/f1", "file"), "src-fifo": (COPY, False, "near/src/d/f1", "fifo"),
    "dst-dir": (COPY, False, "near/dst/d", "dir"), "dst-deep": (COPY, False, "near/dst/d/e", "deep"),
    "dst-file": (COPY, False, "near/dst/d/f1", "file"),
    "move-src-dir": (MOVE, True, "near/src/d", "dir"), "move-src-file": (MOVE, True, "near/src/d/f1", "file"),
    "move-src-fifo": (MOVE, True, "near/src/d/f1", "fifo"), "move-dst-dir": (MOVE, True, "far/dst/d", "dir"),
    "move-near-dir": (MOVE, False, "near/src/d", "dir"),
    "remove-dir": (REMOVE, False, "near/src/d", "dir"), "remove-deep": (REMOVE, False, "near/src/d/e", "deep"),
}


def tree(top):
    for n in (1, 2, 3):
        write(f"{top}/d/f{n}", b"public %d\n" % n)
    write(top + "/d/e/g", b"public g\n")
    write(top + "/top", b"public top\n")


class Field:
    def __init__(self, lab, scenario):
        self.tools, far, name, self.kind = SCENARIOS[scenario]
        self.top, self.out, side = lab.path("w"), lab.path("outside"), name.split("/")[0]
        self.src, self.dst = self.top + "/near/src", self.top + ("/far/dst" if far else "/near/dst")
        self.target, self.hostile = f"{self.top}/{name}", f"{self.top}/{side}/hostile"
        self.full_dst, self.moving = "/dst/" in name and not far, self.tools is MOVE
        os.makedirs(self.top + "/near")
        if far:
            lab.mount(self.top + "/far", "-t", "tmpfs", "none")

    def reset(self):
        for path in (self.src, self.dst, self.hostile, self.out):
            remove(path)
        tree(self.src)
        tree(self.dst) if self.full_dst else os.makedirs(self.dst)
        for n in ("f1", "f2", "f3", "secret", "e/g", "e/s2", "g"):
            write(f"{self.out}/{n}", SECRET)
            os.chmod(f"{self.out}/{n}", 0o600)
        for n in ("e", ""):
            os.chmod(f"{self.out}/{n}", 0o700)
        for root, dirs, files in os.walk(self.out, topdown=False):
            for n in files + [""]:
                os.utime(os.path.join(root, n), ns=(10**18, 10**18))
        if self.kind == "fifo":
            os.mkfifo(self.hostile)
        else:
            os.symlink({"dir": self.out, "deep": self.out + "/e", "file": self.out + "/secret"}[self.kind], self.hostile)

    def outside(self):
        state = {}
        content = snapshot(self.out)
        for k in ["", *content]:
            s = os.lstat(os.path.join(self.out, k))
            state[k] = (content.get(k), (s.st_mode, s.st_uid, s.st_gid), s.st_mtime_ns, s.st_nlink)
        return state

    def leaked(self):
        for root, _, files in os.walk(self.dst):
            for n in files:
                p = os.path.join(root, n)
                # What was moved aside whole is still the outside's own inode: only regular files hold content.
                if stat.S_ISREG(os.lstat(p).st_mode):
                    with open(p, "rb") as f:
                        if SECRET in f.read():
                            return os.path.relpath(p, self.top)


def judge(field, before, rc, err):
    found, after = set(), field.outside()
    if set(before) - set(after):
        found.add("outside-removed")
    if set(after) - set(before):
        found.add("outside-made")
    for k in set(before) & set(after):
        content, mode, when, _ = (a != b for a, b in zip(before[k], after[k]))
        if content:
            found.add("outside-content")
        if mode:
            found.add("outside-mode")
        if when:
            found.add("outside-time")
    if field.leaked():
        found.add("secret-copied")
    if rc == -99:
        found.add("hang")
    elif rc < 0 or 128 <= rc < 250 or b"panicked" in err:
        found.add("crash")
    return found


def main():
    a = arguments(__doc__)
    a.add_argument("--scenario", action="append", choices=SCENARIOS)
    a.add_argument("--spin", type=float, help="seconds of an attacker in a loop, for each scenario")
    o = a.parse_args()
    verdict = Verdict("race", o.tool, o.show)
    for scenario in o.scenario or SCENARIOS:
        for tool, line in SCENARIOS[scenario][0].items():
            # bcmr has several command lines; all are tried.
            if tool.split("-")[0] != o.tool:
                continue
            with Lab(o) as lab:
                field = Field(lab, scenario)
                command = [w.format(s=field.src, d=field.dst, bcmr=o.bcmr) for w in line]
                field.reset()
                before, runs, calls = field.outside(), 0, []
                if o.spin:
                    until = time.time() + o.spin
                    while time.time() < until:
                        field.reset()
                        attacker = subprocess.Popen([lab.xchg, field.target, field.hostile, "loop"])
                        rc, err = lab.run(command, timeout=60)
                        attacker.kill()
                        attacker.wait()
                        runs += 1
                        for what in judge(field, before, rc, err):
                            verdict.add(what, ("run %d" % runs, "exit %d" % rc, err[-120:].decode(errors="replace")))
                else:
                    calls, _ = lab.calls(command, field.top)
                    # In a slice every so many calls, and not the same ones on every line.
                    step = max(1, len(calls) // 16) if o.quick else 1
                    first = 1 + sum((scenario + tool).encode()) % step
                    for k in range(first, len(calls) + 1, step):
                        field.reset()
                        hook = f"{lab.xchg} {field.target} {field.hostile}"
                        rc, err = lab.fault(command, field.top, k, "hook", hook=hook, timeout=60)
                        runs += 1
                        for what in judge(field, before, rc, err):
                            verdict.add(what, (k, *calls[k - 1], "exit %d" % rc, err[-120:].decode(errors="replace")))
                        if verdict.found["hang"] >= 5:
                            break
                verdict.say(scenario=scenario, line=tool, calls=len(calls), runs=runs)
    verdict.exit()


if os.geteuid() != 0:
    skip("mounting a second file system needs root")
main()
