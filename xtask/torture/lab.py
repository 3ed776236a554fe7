"""What the judges share: a scratch place in memory, the tools' command lines, snapshots of trees, and the verdict.

A judge knows a tool only by its command lines. cp, rsync, mv and rm are there to see that the judge itself works: it
must find in cp what is known to be wrong with cp.
"""
import argparse, collections, hashlib, json, os, shutil, stat, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))


def arguments(about):
    """The options that every judge has; a judge may add its own."""
    a = argparse.ArgumentParser(description=about.split("\n")[0])
    a.add_argument("--bcmr", default="bcmr", help="the binary under test")
    a.add_argument("--tools", required=True, help="directory with the built ptfault and xchg")
    a.add_argument("--tool", default="bcmr", help="bcmr, or a known tool to judge the judge")
    a.add_argument("--quick", action="store_true", help="a sample of the cases")
    a.add_argument("--show", type=int, default=3, help="examples shown for each violation")
    return a


class Lab:
    """A scratch directory that is gone at the end, with what is mounted below it."""

    def __init__(self, options):
        self.ptfault, self.xchg = (os.path.join(options.tools, n) for n in ("ptfault", "xchg"))
        self.root = tempfile.mkdtemp(prefix="bcmr-torture-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        os.chmod(self.root, 0o755)
        self.mounts = []
        os.makedirs(self.path("home"))
        home = self.path("home")
        self.env = dict(os.environ, HOME=home, XDG_DATA_HOME=home + "/data", XDG_STATE_HOME=home + "/state",
                        XDG_CACHE_HOME=home + "/cache", LC_ALL="C")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for m in reversed(self.mounts):
            subprocess.run(["umount", "-l", m], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.root, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def mount(self, where, *args):
        os.makedirs(where, exist_ok=True)
        subprocess.run(["mount", *args, where], check=True, capture_output=True)
        self.mounts.append(where)

    def unmount(self, where):
        subprocess.run(["umount", where], check=True, capture_output=True)
        self.mounts.remove(where)

    def run(self, command, timeout=60, **more):
        """(exit code, standard error); -99 when it had to be stopped."""
        try:
            p = subprocess.run(command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, timeout=timeout, **more)
            return p.returncode, p.stderr
        except subprocess.TimeoutExpired as e:
            return -99, e.stderr or b""

    def calls(self, command, prefix):
        """The calls of an undisturbed run as (name, path), and its (exit code, standard error)."""
        trace = self.path("trace")
        ended = self.run([self.ptfault, "-p", prefix, "-o", trace, "--", *command])
        with open(trace, errors="surrogateescape") as f:
            lines = [line.rstrip("\n").split(" ", 2) for line in f]
        # A newline in a name makes a line of its own; no tree under ptfault has one.
        return [(l[1], l[2] if len(l) > 2 else "") for l in lines], ended

    def fault(self, command, prefix, index, action, error=5, hook=None, timeout=60):
        more = ["-x", hook] if hook else []
        return self.run([self.ptfault, "-p", prefix, "-n", str(index), "-a", action, "-e", str(error), *more, "--",
                         *command], timeout=timeout)


def digest(path):
    try:
        with open(path, "rb") as f:
            return hashlib.blake2b(f.read(), digest_size=12).hexdigest()
    except OSError as e:
        return "error %d" % e.errno


def snapshot(top):
    """Every name below `top` with its kind, and its content or target."""
    found = {}
    for root, dirs, files in os.walk(top):
        for n in dirs + files:
            p = os.path.join(root, n)
            k, s = os.path.relpath(p, top), os.lstat(p)
            if stat.S_ISLNK(s.st_mode):
                found[k] = ("link", os.readlink(p))
            elif stat.S_ISDIR(s.st_mode):
                found[k] = ("dir",)
            elif stat.S_ISREG(s.st_mode):
                found[k] = ("file", digest(p))
            else:
                found[k] = ("special",)
    return found


def remove(path):
    subprocess.run(["rm", "-rf", path], check=True)


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


class Verdict:
    """Violations by name, with examples; says them at the end and exits accordingly."""

    def __init__(self, judge, tool, show):
        self.head, self.show = dict(judge=judge, tool=tool), show
        self.found, self.examples, self.begun = collections.Counter(), collections.defaultdict(list), time.time()
        self.bad = False

    def add(self, what, example):
        self.found[what] += 1
        self.examples[what].append(example)

    def say(self, **figures):
        """Closes one scenario."""
        seconds = round(time.time() - self.begun, 1)
        print(json.dumps({**self.head, **figures, "seconds": seconds, "violations": dict(self.found)}), flush=True)
        for what, examples in self.examples.items():
            for e in examples[: self.show]:
                print("    %s: %s" % (what, str(e)[:400]), flush=True)
        self.bad |= bool(self.found)
        self.found.clear()
        self.examples.clear()
        self.begun = time.time()

    def exit(self):
        # Python's own exit code for an exception is 1: that is a broken judge, not a finding.
        sys.exit(3 if self.bad else 0)


def skip(why):
    """What could not run did not pass."""
    print("NOT RUN: " + why, flush=True)
    sys.exit(77)
