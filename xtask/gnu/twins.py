#!/usr/bin/env python3
"""The same command line on twin trees, once with the system's own program and once with ours; then everything that can
be told apart is compared: trees, output, errors, exit codes.

Lines are drawn from a grammar by a seed, so that each can be run again: `--seed S --only N`. Differences by design stand in
by-design.toml, each with its reason, the lines and the property that it is about, and what must be so besides
(`conditions.py`); any other is a finding. Run by `cargo xtask gnu`.
"""
import argparse
import hashlib
import os
import random
import re
import resource
import stat
import subprocess
import sys
import tempfile
import time
import tomllib

import conditions
import grammar
import world

HERE = os.path.dirname(os.path.abspath(__file__))
THEIRS = {"cp": "/bin/cp", "mv": "/bin/mv", "rm": "/bin/rm", "install": "/usr/bin/install"}
TIMEOUT = 6.0
# A copy of a directory into itself may end only where names get too long: below this nothing is compared, and that is said.
DEPTH_MAX = 100
# No file of a line gets longer.
FILE_BYTES_MAX = 64 << 20


def when(ns, started):
    return ns if ns < started else "new"


def snapshot(top, far, started, inodes):
    """Everything that can be told of a tree. `inodes`: what each name was before, to tell what was replaced.

    By descriptors, one name at a time: paths may be longer than any call takes.
    """
    found, groups = {}, {}

    def one(parent, name, shown):
        """Looks at one name; a directory comes back open."""
        info = os.stat(name, dir_fd=parent, follow_symlinks=False)
        kind, opened = stat.S_IFMT(info.st_mode), None
        entry = {"kind": kind, "mode": oct(stat.S_IMODE(info.st_mode)), "owner": (info.st_uid, info.st_gid)}
        entry["mtime"] = when(info.st_mtime_ns, started)
        if shown in inodes:
            # Where numbers are given again they tell nothing.
            entry["kept"] = None if shown.startswith("m:") else inodes[shown] == info.st_ino
        elif kind != stat.S_IFDIR:
            entry["atime"] = when(info.st_atime_ns, started)
        if kind in (stat.S_IFREG, stat.S_IFDIR):
            opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
            entry["xattr"] = {n: os.getxattr(opened, n).hex() for n in os.listxattr(opened)}
        if kind == stat.S_IFREG:
            with open(opened, "rb") as file:
                entry["content"] = hashlib.md5(file.read()).hexdigest()
            opened = None
            entry["size"] = info.st_size
            entry["holes"] = info.st_blocks * 512 < info.st_size
        # Of the one that leads to the other file system the path is another one each time.
        if kind == stat.S_IFLNK and shown != "/m":
            entry["target"] = os.readlink(name, dir_fd=parent)
        if kind in (stat.S_IFCHR, stat.S_IFBLK):
            entry["device"] = info.st_rdev
        if kind != stat.S_IFDIR and info.st_nlink > 1:
            groups.setdefault((info.st_dev, info.st_ino), []).append(shown)
        found[shown] = entry
        return opened

    def walk(opened, shown):
        under_way = [(opened, shown, sorted(os.listdir(opened)))]
        while under_way:
            opened, shown, names = under_way[-1]
            if not names:
                os.close(opened)
                under_way.pop()
                continue
            path = shown + "/" + names[-1]
            below = one(opened, names.pop(), path)
            if below is None:
                continue
            if len(under_way) < DEPTH_MAX:
                under_way.append((below, path, sorted(os.listdir(below))))
            else:
                found[path]["bounded"] = True
                os.close(below)

    walk(one(None, top, ""), "")
    walk(os.open(far, os.O_RDONLY | os.O_DIRECTORY), "m:")
    for names in groups.values():
        for name in names:
            found[name]["links"] = sorted(names)
    return found


def is_bounded(results):
    """Whether something was too deep to be compared."""
    return any("bounded" in entry for _, tree in results for entry in tree.values())


def inodes_of(top, far):
    found = {}
    for base, head in ((top, ""), (far, "m:")):
        for folder, dirs, files in os.walk(base):
            shown = head + folder[len(base):]
            found[shown] = os.lstat(folder).st_ino
            for name in dirs + files:
                found[shown + "/" + name] = os.lstat(os.path.join(folder, name)).st_ino
    return found


def run(line, words, program, top, argv0):
    ids = {} if line["root"] else {"user": world.NOBODY, "group": world.NOBODY, "extra_groups": []}
    try:
        done = subprocess.run([argv0] + [os.fsencode(word) for word in words], executable=program, cwd=top, env=line["env"],
                              input=line["stdin"].encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=TIMEOUT, umask=line["umask"], **ids)
        return {"code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
    except subprocess.TimeoutExpired:
        return {"code": "timeout", "stdout": b"", "stderr": b""}


class Difference:
    """One property that differs: of the run (`path` is None), or of a name in the tree."""

    def __init__(self, part, path, prop, theirs, ours):
        self.part, self.path, self.prop, self.theirs, self.ours = part, path, prop, theirs, ours

    def lines(self):
        head = self.part if self.path is None else f"{self.path!r} {self.prop}"
        return f"  {head}\n    theirs {self.theirs!r}\n    ours   {self.ours!r}"


def differences(theirs, ours):
    found = []
    for part in ("code", "stdout", "stderr"):
        if theirs[0][part] != ours[0][part]:
            found.append(Difference(part, None, part, theirs[0][part], ours[0][part]))
    for name in sorted(set(theirs[1]) | set(ours[1])):
        a, b = theirs[1].get(name), ours[1].get(name)
        if a is None or b is None:
            found.append(Difference("tree", name, "there", a is not None, b is not None))
            continue
        for key in sorted(set(a) | set(b)):
            if a.get(key) != b.get(key):
                found.append(Difference("tree", name, key, a.get(key), b.get(key)))
    return found


def listed(rules, case, difference):
    """Whether a rule says that this is meant: all that it names must be so."""
    for rule in rules:
        if case.line["program"] not in rule["program"] or difference.prop not in rule["property"]:
            continue
        if rule.get("both_fail") and (case.theirs["code"] == 0 or case.theirs["code"] != case.ours["code"]):
            continue
        if "options" in rule and not any(re.search(rule["options"], word) for word in case.line["options"]):
            continue
        for key in ("theirs", "ours"):
            if key in rule and not re.search(rule[key], str(getattr(difference, key))):
                break
        else:
            if all(getattr(conditions, name)(case, difference) for name in rule["when"]):
                rule["met"] = rule.get("met", 0) + 1
                return True
    return False


class Case:
    """One line with all that came of it."""

    def __init__(self, line, before, theirs, ours):
        self.line, self.before = line, before
        self.theirs, self.ours = theirs[0], ours[0]
        self.their_tree, self.our_tree = theirs[1], ours[1]


def show(name, line, left, bounded):
    who = "root" if line["root"] else "user"
    print(f"--- {name} ({who}, umask {line['umask']:03o}, {line['env']}, stdin {line['stdin']!r})")
    print("    " + " ".join([line["program"], *map(repr, line["words"])]))
    if line["theirs"] != line["words"]:
        print("    theirs: " + " ".join(map(repr, line["theirs"])))
    if bounded:
        print(f"    compared to a depth of {DEPTH_MAX} only")
    for difference in left[:8]:
        print(difference.lines())
    sys.stdout.flush()


def known(place, root):
    """The tree as it is before anything is run; looking at it changes times, so it is made for that alone."""
    if root not in place.known:
        place.build(root)
        place.known[root] = snapshot(place.top, place.far, time.time_ns() - 3600 * 10**9, inodes_of(place.top, place.far))
    return place.known[root]


def lines_of(args):
    """What is to be run, each with its name: lines that are kept, and drawn ones."""
    if args.only is None and args.first == 0:
        with open(os.path.join(HERE, "kept.txt"), encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                if not text.startswith("#"):
                    yield f"kept.txt line {number}", grammar.kept(text)
    for number in [args.only] if args.only is not None else range(args.first, args.first + args.lines):
        yield f"seed {args.seed} line {number}", grammar.draw(random.Random(f"{args.seed}:{number}"))


def compare(args, rules):
    """Runs the lines; how many there were, how many with unlisted differences, and how many that were too deep."""
    place = world.World()
    mine = place.program(args.bcmr)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    findings, ran, bounded = 0, 0, 0
    try:
        for name, line in lines_of(args):
            if args.program and line["program"] != args.program:
                continue
            results, before = [], known(place, line["root"])
            for side, program, words in (("theirs", THEIRS[line["program"]], line["theirs"]), ("ours", mine, line["words"])):
                # The same path for both, so that nothing can differ by it.
                place.build(line["root"])
                started = time.time_ns() - 3600 * 10**9
                inodes = inodes_of(place.top, place.far)
                outcome = run(line, words, program, place.top, line["program"])
                results.append((outcome, snapshot(place.top, place.far, started, inodes)))
            if args.only is not None:
                print("theirs:", results[0][0], "\nours:  ", results[1][0])
            ran += 1
            bounded += is_bounded(results)
            case = Case(line, before, *results)
            left = [d for d in differences(*results) if not listed(rules, case, d)]
            if left:
                findings += 1
                show(name, line, left, is_bounded(results))
                if findings >= args.most:
                    print(f"stopped after {findings} findings")
                    break
    finally:
        place.clear()
    return ran, findings, bounded


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bcmr", required=True)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--from", type=int, default=0, dest="first", help="number of the first line")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", type=int)
    parser.add_argument("--program")
    parser.add_argument("--most", type=int, default=20, help="stop after so many findings")
    args = parser.parse_args()
    args.bcmr = os.path.abspath(args.bcmr)
    if os.geteuid() != 0:
        print("twins: needs root, to run lines as root and as another user", file=sys.stderr)
        sys.exit(77)
    said = subprocess.run(["/bin/cp", "--version"], stdout=subprocess.PIPE).stdout.split(b"\n")[0]
    if said != b"cp (GNU coreutils) 9.1":
        print(f"twins: judged by coreutils 9.1, and this is {said!r}", file=sys.stderr)
        sys.exit(77)
    if not world.alone():
        print("twins: no mount namespace of its own", file=sys.stderr)
        sys.exit(77)
    with open(os.path.join(HERE, "by-design.toml"), "rb") as file:
        rules = tomllib.load(file)["difference"]
    os.umask(0o22)
    began = time.time()
    ran, findings, bounded = compare(args, rules)
    met = ", ".join(f"{r['name']} {r['met']}" for r in rules if r.get("met"))
    print(f"{ran} lines in {time.time() - began:.0f} s, {findings} with unlisted differences; by design: {met or 'none'}")
    if bounded:
        print(f"{bounded} of them were compared to a depth of {DEPTH_MAX} only")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
