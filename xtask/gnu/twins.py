#!/usr/bin/env python3
"""The same command line on twin trees, once with the system's own program and once with ours; then everything that can
be told apart is compared: trees, output, errors, exit codes.

Lines are drawn from a grammar by a seed, so that each can be run again: `--seed S --only N`. Differences by design stand in
by-design.toml, each with its reason; any other is a finding. Run by `cargo xtask gnu`.
"""
import argparse
import hashlib
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
THEIRS = {"cp": "/bin/cp", "mv": "/bin/mv", "rm": "/bin/rm", "install": "/usr/bin/install"}
NOBODY = 65534
OLD = 1_000_000_000
TIMEOUT = 4.0

FILES = ["f", "g", "e", "r", "x", "s", "h1", "h2", "sp", "xa", "ac", "it's", "new\nline", "sp ace", "\u00e9", "f~", "foreign"]
LINKS = ["lf", "ld", "dang", "loop", "lh", "labs"]
DIRS = ["d", "d2", "ed", "nw", "nr", "ad", "d/sub", "d/sub/deep"]
BELOW = ["d/f", "d/g", "d/sub/f", "d/sub/lf", "d/h3", "d2/f", "d2/sub"]
OTHERS = ["p", "m/f", "m/d", "m/n1", "m"]
NEW = ["n1", "n2", "d/n1", "ed/n1", "nw/n1", "nodir/n1", "f/n1", "n1/", "n3/n4"]


def operand(rng, new=0.15):
    roll = rng.random()
    if roll < new:
        return rng.choice(NEW)
    pool = rng.choices([FILES, LINKS, DIRS, BELOW, OTHERS, [".", "..", "d/.", "d/..", "", "./f", "d//f"]],
                       [30, 10, 25, 12, 6, 2])[0]
    name = rng.choice(pool)
    if rng.random() < 0.08 and name:
        name += "/"
    return name


OPTIONS = {
    "cp": [("-r", 30), ("-a", 12), ("-R", 4), ("-f", 10), ("-i", 6), ("-n", 6), ("-v", 30), ("-p", 10), ("-d", 6), ("-P", 6),
           ("-L", 6), ("-H", 5), ("-l", 6), ("-s", 6), ("-u", 7), ("-x", 3), ("-b", 7), ("-T", 8), ("-S.bak", 3), ("--backup", 3),
           ("--backup=numbered", 4), ("--backup=simple", 3), ("--backup=none", 2), ("--backup=t", 2), ("--backup=nil", 2), ("--backup=x", 1),
           ("--parents", 5), ("--remove-destination", 6), ("--attributes-only", 4), ("--preserve=mode", 3), ("--preserve=all", 3),
           ("--preserve=timestamps,links", 3), ("--preserve=ownership", 2), ("--preserve=xattr", 2), ("--preserve=foo", 1), ("--no-preserve=mode", 4),
           ("--no-preserve=all", 2), ("--no-preserve=timestamps", 2), ("--sparse=always", 2), ("--sparse=never", 2), ("--sparse=x", 1), ("--reflink=auto", 2),
           ("--reflink=never", 2), ("--strip-trailing-slashes", 3), ("--copy-contents", 1), ("-Z", 1), ("--context=x", 1), ("--verb", 2), ("--p", 1),
           ("--bogus", 1), ("-q", 1), ("--", 2), ("--no-deref", 2), ("--recursive", 2), ("--force", 2), ("--update", 2), ("--link", 2)],
    "mv": [("-f", 12), ("-i", 10), ("-n", 10), ("-v", 40), ("-u", 10), ("-b", 10), ("-T", 12), ("-S.bak", 4), ("--backup=numbered", 6),
           ("--backup=simple", 3), ("--backup=none", 2), ("--backup=existing", 3), ("--strip-trailing-slashes", 5), ("-Z", 1), ("--bogus", 1), ("-q", 1), ("--no-c", 1),
           ("--backup=n", 1), ("--", 2), ("--verbose", 3)],
    "rm": [("-r", 45), ("-f", 25), ("-i", 18), ("-I", 6), ("-d", 10), ("-v", 45), ("-R", 5), ("--interactive", 4), ("--interactive=never", 3),
           ("--interactive=once", 3), ("--interactive=x", 1), ("--one-file-system", 4), ("--preserve-root", 2), ("--preserve-root=all", 3), ("--dir", 3),
           ("--bogus", 1), ("-q", 1), ("--", 2), ("--recursive", 3), ("--verb", 2)],
    "install": [("-v", 35), ("-D", 20), ("-d", 14), ("-b", 8), ("-m600", 8), ("-m", 0), ("-mu=rwx,go=rx", 4), ("-m4755", 4), ("-m2750", 2), ("-mx", 1), ("-p", 12), ("-C", 10),
                ("-c", 4), ("-T", 10), ("-S.bak", 3), ("--backup=numbered", 4), ("-o0", 3), ("-g0", 3), ("-o65534", 2), ("-onosuch", 1), ("-gnosuch", 1),
                ("--bogus", 1), ("-q", 1), ("--compare", 2), ("--mode=644", 4), ("-s --strip-program=true", 3), ("--strip-program=true", 1), ("-Z", 1), ("--", 1)],
}


def draw(rng):
    program = rng.choices(["cp", "mv", "rm", "install"], [45, 20, 17, 18])[0]
    names, weights = zip(*OPTIONS[program])
    words = []
    for _ in range(rng.choices([0, 1, 2, 3, 4], [12, 26, 32, 20, 10])[0]):
        words += rng.choices(names, weights)[0].split(" ")
    if program == "rm":
        operands = [operand(rng, 0.1) for _ in range(rng.choices([0, 1, 2, 3, 5], [2, 55, 25, 12, 6])[0])]
        # What would remove more than the tree is not tried.
        operands = [o for o in operands if o.rstrip("/") not in ("", "..", "d/..") or o == ""]
        if not operands and rng.random() < 0.8:
            operands = ["f"]
    else:
        operands = [operand(rng) for _ in range(rng.choices([0, 1, 2, 3, 4], [2, 4, 68, 20, 6])[0])]
        if len(operands) >= 2 and rng.random() < 0.35:
            operands[-1] = rng.choice(DIRS + ["m"])
        elif len(operands) >= 2 and rng.random() < 0.3:
            operands[-1] = rng.choice(NEW)
        if program != "install" and rng.random() < 0.1:
            words += rng.choice([["-t", rng.choice(DIRS + NEW)], ["--target-directory=" + rng.choice(DIRS)], ["--target", rng.choice(DIRS)]])
    # What lands beside the tree would be met by the next line.
    operands = ["ed" if o.rstrip("/") == ".." else o for o in operands]
    words += operands
    if rng.random() < 0.3:
        rng.shuffle(words)
    # A FIFO that is read waits for ever, in both.
    recursive = any(re.match(r"-[^-]*[raRdls]|--rec|--arch|--link", w) for w in words)
    if program in ("cp", "install") and (not recursive or "--copy-contents" in words or "-L" in words):
        words = [w for w in words if w.rstrip("/") not in ("p",)]
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": rng.choices(["C", "C.UTF-8"], [70, 30])[0]}
    if rng.random() < 0.04:
        env["POSIXLY_CORRECT"] = "1"
    if rng.random() < 0.05:
        env["VERSION_CONTROL"] = rng.choice(["numbered", "simple", "none", "t", "bogus", ""])
    if rng.random() < 0.05:
        env["SIMPLE_BACKUP_SUFFIX"] = rng.choice([".sav", "", "/x", "~~"])
    answers = "".join(rng.choice(["y\n", "n\n", "y\n", "\n", "yes\n", "N\n"]) for _ in range(12)) if rng.random() < 0.85 else ""
    return {
        "program": program, "words": words, "env": env, "stdin": answers, "umask": rng.choice([0o22, 0o22, 0o77, 0o2]),
        "root": rng.random() < 0.5,
    }


def build(top, far, root):
    """The tree that every line meets. In one order, so that inodes and listings are alike."""
    me = 0 if root else NOBODY
    os.makedirs(top)
    os.makedirs(far)
    os.chdir(top)

    def put(name, text=None, mode=0o644, age=0):
        with open(name, "wb") as file:
            file.write((text if text is not None else name).encode("utf-8", "surrogateescape"))
        os.chmod(name, mode)
        os.utime(name, ns=((OLD + age) * 10**9 + 7, (OLD + age) * 10**9 + 123456789))

    put("f", "content of f\n", age=100)
    put("g", "content of g, longer\n", age=50)
    put("e", "", age=10)
    put("r", mode=0o444, age=20)
    put("x", mode=0o755, age=30)
    put("s", mode=0o4755, age=40)
    put("h1", "linked", age=60)
    os.link("h1", "h2")
    put("sp", "")
    with open("sp", "r+b") as file:
        file.seek(300_000)
        file.write(b"end")
        file.truncate(700_000)
    os.utime("sp", ns=(OLD * 10**9, OLD * 10**9))
    put("xa", age=70)
    os.setxattr("xa", "user.note", b"kept")
    put("ac", age=80)
    subprocess.run(["setfacl", "-m", "u:1:rw", "ac"], check=True)
    for name in ["it's", "new\nline", "sp ace", "\u00e9", "f~", "foreign"]:
        put(name, age=5)
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
    os.mkdir("ed")
    os.mkdir("ad", 0o750)
    put("ad/f", "below an ACL\n")
    subprocess.run(["setfacl", "-m", "u:1:rx,d:u:1:rw", "ad"], check=True)
    os.mkdir("nw")
    put("nw/f", "cannot go\n", age=9)
    os.mkdir("nr")
    put("nr/f")
    os.symlink("f", "lf")
    os.symlink("d", "ld")
    os.symlink("nowhere", "dang")
    os.symlink("loop", "loop")
    os.symlink("h1", "lh")
    os.symlink(os.path.join(top, "g"), "labs")
    os.mkfifo("p")
    os.symlink(far, "m")
    put("m/f", "far f\n", age=300)
    os.mkdir("m/d")
    put("m/d/f", "far inner f\n", age=301)
    for base in (top, far):
        for folder, dirs, files in os.walk(base, topdown=False):
            for name in files + dirs:
                os.chown(os.path.join(folder, name), me, me, follow_symlinks=False)
                if os.path.islink(os.path.join(folder, name)):
                    os.utime(os.path.join(folder, name), ns=(OLD * 10**9, OLD * 10**9), follow_symlinks=False)
            os.chown(folder, me, me)
            os.utime(folder, ns=(OLD * 10**9, OLD * 10**9))
    os.chmod("s", 0o4755)
    os.chown("foreign", 1, 1)
    os.chmod("nw", 0o555)
    os.chmod("nr", 0)
    os.utime("m/d", ns=(OLD * 10**9, OLD * 10**9))


def when(ns, started):
    return ns if ns < started else "new"


def snapshot(top, far, started):
    found, groups = {}, {}

    def one(path, shown):
        info = os.lstat(path)
        kind = stat.S_IFMT(info.st_mode)
        entry = {"kind": kind, "mode": oct(stat.S_IMODE(info.st_mode)), "owner": (info.st_uid, info.st_gid)}
        entry["mtime"] = when(info.st_mtime_ns, started)
        if stat.S_ISREG(kind):
            with open(path, "rb") as file:
                entry["content"] = hashlib.md5(file.read()).hexdigest()
            entry["size"] = info.st_size
            entry["holes"] = info.st_blocks * 512 < info.st_size
        if stat.S_ISLNK(kind) and path != os.path.join(top, "m"):
            entry["target"] = os.readlink(path)
        if kind in (stat.S_IFREG, stat.S_IFDIR):
            entry["xattr"] = {n: os.getxattr(path, n).hex() for n in os.listxattr(path)}
        if not stat.S_ISDIR(kind) and info.st_nlink > 1:
            groups.setdefault((info.st_dev, info.st_ino), []).append(shown)
        found[shown] = entry
        if stat.S_ISDIR(kind):
            for name in sorted(os.listdir(path)):
                one(os.path.join(path, name), shown + "/" + name)

    one(top, "")
    for name in sorted(os.listdir(far)):
        one(os.path.join(far, name), "m:/" + name)
    for names in groups.values():
        for name in names:
            found[name]["links"] = sorted(names)
    return found


def run(line, program, top, argv0):
    def before():
        os.umask(line["umask"])

    ids = {} if line["root"] else {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    try:
        done = subprocess.run([argv0] + line["words"], executable=program, cwd=top, env=line["env"], input=line["stdin"].encode(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT, preexec_fn=before, **ids)
        return {"code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
    except subprocess.TimeoutExpired:
        return {"code": "timeout", "stdout": b"", "stderr": b""}


def clear(base):
    for folder in (base,):
        if os.path.lexists(folder):
            shutil.rmtree(folder)


def differences(theirs, ours):
    found = []
    for part in ("code", "stdout", "stderr"):
        if theirs[0][part] != ours[0][part]:
            found.append((part, repr(theirs[0][part]), repr(ours[0][part])))
    before, after = theirs[1], ours[1]
    for name in sorted(set(before) | set(after)):
        a, b = before.get(name), after.get(name)
        if a != b:
            if a is None or b is None:
                found.append(("tree", f"{name!r}: {'absent' if a is None else 'there'}", f"{name!r}: {'absent' if b is None else 'there'}"))
                continue
            for key in sorted(set(a) | set(b)):
                if a.get(key) != b.get(key):
                    found.append(("tree", f"{name!r} {key}: {a.get(key)}", f"{name!r} {key}: {b.get(key)}"))
    return found


def listed(rules, line, difference, codes):
    part, theirs, ours = difference
    text = " ".join([line["program"], *line["words"]])
    for rule in rules:
        if rule.get("both_fail") and (codes[0] == 0 or codes[0] != codes[1]):
            continue
        if part not in rule["part"] or not re.search(rule.get("line", ""), text):
            continue
        if re.search(rule.get("theirs", ""), theirs) and re.search(rule.get("ours", ""), ours):
            rule["met"] = rule.get("met", 0) + 1
            return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bcmr", required=True)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", type=int)
    parser.add_argument("--program")
    parser.add_argument("--most", type=int, default=20, help="stop after so many findings")
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("twins: needs root, to run lines as root and as another user", file=sys.stderr)
        sys.exit(77)
    said = subprocess.run(["/bin/cp", "--version"], stdout=subprocess.PIPE).stdout.split(b"\n")[0]
    if said != b"cp (GNU coreutils) 9.1":
        print(f"twins: judged by coreutils 9.1, and this is {said!r}", file=sys.stderr)
        sys.exit(77)
    with open(os.path.join(HERE, "by-design.toml"), "rb") as file:
        rules = tomllib.load(file)["difference"]
    base = tempfile.mkdtemp(prefix="twins-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    other = tempfile.mkdtemp(prefix="twins-far-", dir="/var/tmp")
    os.chmod(base, 0o755)
    os.chmod(other, 0o755)
    bin_dir = os.path.join(base, "bin")
    os.mkdir(bin_dir)
    mine = os.path.join(bin_dir, "bcmr")
    shutil.copy(args.bcmr, mine)
    os.chmod(mine, 0o755)
    os.umask(0o22)
    findings, ran = 0, 0
    began = time.time()
    numbers = [args.only] if args.only is not None else range(args.lines)
    try:
        for number in numbers:
            rng = random.Random(f"{args.seed}:{number}")
            line = draw(rng)
            if args.program and line["program"] != args.program:
                continue
            results = []
            for side, program in (("theirs", THEIRS[line["program"]]), ("ours", mine)):
                # The same path for both, so that nothing can differ by it.
                top, far = os.path.join(base, "w"), os.path.join(other, "w")
                os.chdir("/")
                clear(top)
                clear(far)
                build(top, far, line["root"])
                os.chdir("/")
                started = time.time_ns() - 3600 * 10**9
                outcome = run(line, program, top, line["program"])
                results.append((outcome, snapshot(top, far, started)))
                if args.only is not None and side == "ours":
                    print("theirs:", results[0][0], "\nours:  ", results[1][0])
            ran += 1
            left = [d for d in differences(*results) if not listed(rules, line, d, [r[0]["code"] for r in results])]
            if left:
                findings += 1
                who = "root" if line["root"] else "user"
                print(f"--- seed {args.seed} line {number} ({who}, umask {line['umask']:03o}, {line['env']}, stdin {line['stdin']!r})")
                print("    " + " ".join([line["program"], *map(repr, line["words"])]))
                for part, theirs, ours in left[:8]:
                    print(f"  {part}\n    theirs {theirs}\n    ours   {ours}")
                if findings >= args.most:
                    print(f"stopped after {findings} findings")
                    break
    finally:
        os.chdir("/")
        clear(base)
        clear(other)
    met = ", ".join(f"{r['name']} {r['met']}" for r in rules if r.get("met"))
    print(f"{ran} lines in {time.time() - began:.0f} s, {findings} with unlisted differences; by design: {met or 'none'}")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
