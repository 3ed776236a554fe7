#!/usr/bin/env python3
"""kill -9 at random moments, once or several times, in full parallel speed, and then the same command again.

  torn               after a kill a final name holds something that is neither absent nor wholly old nor wholly new
  lost               after a kill a file that is moved stands whole on neither side
  rerun              the last run does not end well
  rerun-attributes   it does, and an attribute that was asked for is not the source's
  rerun-litter       it does, and leaves something that is not in the source
What a killed run leaves for the next one is counted as `left`, and is no violation.
"""
import os, random, signal, subprocess, time
import treecmp
from lab import Lab, Verdict, arguments, remove, skip, snapshot, write

BCMR = ["{bcmr}", "copy", "-q"]
CS = ["-C", "--checkpoint-size", "4M"]


class Line:
    """`far`: the destination is on another file system. `attributes`: all of them were asked for. `in_place`: a name may
    hold half of it until the command has ended. `tree`: the whole source becomes the new directory `n`."""

    def __init__(self, *words, far=False, attributes=False, in_place=False, tree=False):
        self.words, self.far, self.attributes, self.in_place, self.tree = words, far, attributes, in_place, tree
        self.moves = "move" in words or "mv" in words


LINES = {
    "cp": Line("cp", "-a", "{items}", "{d}/", attributes=True),
    "mv": Line("mv", "-f", "{items}", "{d}/", attributes=True, far=True),
    "rsync": Line("rsync", "-aHAX", "{s}/", "{d}/", attributes=True),
    "bcmr": Line(*BCMR, "--archive", "{items}", "{d}/", attributes=True),
    "bcmr-far": Line(*BCMR, "--archive", "{items}", "{d}/", attributes=True, far=True),
    "bcmr-plain": Line(*BCMR, "-r", "{items}", "{d}/"),
    "bcmr-sync": Line(*BCMR, "--archive", "--sync", "{items}", "{d}/", attributes=True),
    "bcmr-ring": Line(*BCMR, "-r", "--engine=ring", "--async-threshold=0", "{items}", "{d}/", far=True),
    "bcmr-in-place": Line(*BCMR, "-r", "--inplace", "{items}", "{d}/", in_place=True),
    "bcmr-resume": Line(*BCMR, "-r", *CS, "{items}", "{d}/"),
    "bcmr-resume-far": Line(*BCMR, "--archive", *CS, "{items}", "{d}/", attributes=True, far=True),
    "bcmr-strict": Line(*BCMR, "-r", "-s", *CS[1:], "{items}", "{d}/"),
    "bcmr-fast": Line(*BCMR, "-r", "--fast", *CS, "{items}", "{d}/"),
    "bcmr-resume-tree": Line(*BCMR, "--archive", *CS, "{s}", "{d}/n", attributes=True, tree=True, far=True),
    "bcmr-move-far": Line("{bcmr}", "move", "-f", "-q", "{items}", "{d}/", attributes=True, far=True),
    "bcmr-move-merge": Line("{bcmr}", "move", "-f", "--merge", "-q", "{items}", "{d}/", attributes=True, far=True),
}


class Work:
    """A pristine source, the source and the destination."""

    def __init__(self, lab, line, dice):
        self.line, self.pristine, self.src = line, lab.path("pristine"), lab.path("src")
        self.dst, self.old = lab.path("far", "dst"), dice.randbytes(3 << 20)
        if line.far:
            lab.mount(lab.path("far"), "-t", "tmpfs", "none")
        write(self.pristine + "/big", dice.randbytes(21 << 20))
        for i in range(200):
            write(f"{self.pristine}/t/d{i % 7}/e{i % 3}/f{i}", dice.randbytes(dice.randrange(60_000)))
        for i in range(10):
            os.symlink("x", f"{self.pristine}/t/l{i}")
        os.link(self.pristine + "/t/d1/e1/f1", self.pristine + "/t/too")
        os.setxattr(self.pristine + "/t/d1/e1/f1", "user.of", b"f1")
        os.chmod(self.pristine + "/t/d2/e2", 0o750)
        self.new = snapshot(self.pristine)

    def reset(self):
        remove(self.dst)
        os.makedirs(self.dst)
        if not self.line.tree and not self.line.moves:
            write(self.dst + "/big", self.old)
        if self.line.moves or not os.path.isdir(self.src):
            remove(self.src)
            subprocess.run(["cp", "-a", self.pristine, self.src], check=True)

    def command(self, bcmr):
        """The words, or None when nothing is left to do."""
        # A tree whose mark is gone is complete: from then on the same words mean a second copy inside it, as with cp.
        if self.line.tree and os.path.isdir(self.dst + "/n") and not any(is_mark(n) for n in os.listdir(self.dst + "/n")):
            return None
        items = [f"{self.src}/{n}" for n in ("big", "t") if os.path.lexists(f"{self.src}/{n}")]
        if not items:
            return None
        words = []
        for w in self.line.words:
            words += items if w == "{items}" else [w.format(s=self.src, d=self.dst, bcmr=bcmr)]
        return words

    def landed(self):
        """What is at the destination, by its name in the source."""
        top = self.dst + "/n" if self.line.tree else self.dst
        return snapshot(top) if os.path.isdir(top) else {}

    def whole(self, got):
        """(final names that hold neither the new nor the old, files that are on neither side)."""
        torn = [k for k, v in got.items() if v[0] == "file" and k in self.new and v != self.new[k]]
        if not self.line.moves and not self.line.tree and "big" in torn:
            with open(self.dst + "/big", "rb") as f:
                if f.read() == self.old:
                    torn.remove("big")
        lost = []
        if self.line.moves:
            src = snapshot(self.src)
            lost = [k for k, v in self.new.items() if v[0] == "file" and src.get(k) != v != got.get(k)]
        return torn, lost


def is_mark(name):
    return name.startswith(".bcmr-") and name.endswith(".tree")


def main():
    a = arguments(__doc__)
    a.add_argument("--runs", type=int)
    a.add_argument("--line", action="append", choices=LINES)
    a.add_argument("--seed", type=int, default=1)
    o = a.parse_args()
    runs = o.runs or (10 if o.quick else 300)
    verdict, dice = Verdict("kill", o.tool, o.show), random.Random(o.seed)
    for name, line in LINES.items():
        if name.split("-")[0] != o.tool or o.line and name not in o.line:
            continue
        with Lab(o) as lab:
            work, took = Work(lab, line, dice), []
            for _ in range(3):
                work.reset()
                begun = time.time()
                rc, err = lab.run(work.command(o.bcmr))
                took.append(time.time() - begun)
                if rc or work.landed() != work.new:
                    verdict.add("undisturbed", (rc, err[-300:]))
            whole, killed, left = sorted(took)[1], 0, 0
            for n in range(runs):
                work.reset()
                for _ in range(1 if dice.random() < 0.7 else 3):
                    command = work.command(o.bcmr)
                    if command is None:
                        break
                    p = subprocess.Popen(command, env=lab.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL, start_new_session=True)
                    time.sleep(dice.uniform(0, whole * 1.05))
                    try:
                        os.killpg(p.pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                    killed += p.wait() == -9
                    torn, lost = work.whole(work.landed())
                    if torn and not line.in_place:
                        verdict.add("torn", (n, torn[:3]))
                    if lost:
                        verdict.add("lost", (n, lost[:3]))
                left += any(k not in work.new for k in work.landed())
                command = work.command(o.bcmr)
                rc, err = lab.run(command) if command else (0, b"")
                again = work.landed()
                if rc or any(again.get(k) != v for k, v in work.new.items()) or line.moves and os.listdir(work.src):
                    verdict.add("rerun", (n, rc, err[-200:]))
                elif again != work.new and (command or not line.moves):
                    verdict.add("rerun-litter", (n, [k for k in again if k not in work.new]))
                elif line.attributes:
                    differ = list(treecmp.compare(work.pristine, work.dst + ("/n" if line.tree else "")))
                    if differ and command or any(what != "extra" for what, _, _ in differ):
                        verdict.add("rerun-attributes", (n, differ[:3]))
            verdict.say(line=name, runs=runs, killed=killed, left=left, one_run_ms=round(whole * 1000))
    verdict.exit()


if os.geteuid() != 0:
    skip("mounting a second file system needs root")
main()
