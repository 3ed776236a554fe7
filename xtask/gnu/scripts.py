#!/usr/bin/env python3
"""GNU's own test scripts of cp, mv, rm and install, with GNU's programs and with ours.

TREE is a coreutils source tree, configured and built (`./configure && make`); nothing of it is part of this project. Its
programs are exchanged for ours while the scripts run, and are put back. Each script has a time limit: one that waits for what
ours never does counts as failed. Run by `cargo xtask gnu scripts TREE`.
"""
import argparse
import filecmp
import os
import re
import shutil
import signal
import subprocess
import sys

PROGRAMS = ("cp", "mv", "rm", "ginstall")
LIMIT = 60.0
VERDICT = re.compile(r"^(PASS|FAIL|SKIP|ERROR|XFAIL|XPASS): ", re.M)
# By name: why a script that GNU's passes is not meant to pass.
BY_DESIGN = {
    "tests/install/basic-1.sh": "install is called ginstall in the tree, and so do its messages begin",
    "tests/cp/file-perm-race.sh": "waits for a file that is still being written to have its name",
    "tests/mv/part-hardlink.sh": "moves two directories with names of one file to another file system; each goes for itself",
    "tests/rm/rm-readdir-fail.sh": "replaces readdir(3), which is not called",
}


def scripts(tree):
    """Those that the tree's own list names: others are not meant to be run."""
    with open(os.path.join(tree, "tests/local.mk"), encoding="utf-8") as listed:
        words = listed.read().split()
    like = re.compile(r"tests/(cp|mv|rm|install)/[^/]+\.(sh|pl|xpl)$")
    return sorted({word for word in words if like.match(word)})


def run(tree, script, version, before):
    """What the script says of itself; HANG where it says nothing in time."""
    for end in (".log", ".trs"):
        path = os.path.join(tree, os.path.splitext(script)[0] + end)
        if os.path.exists(path):
            os.remove(path)
    make = ["make", "-C", tree, "check-TESTS", f"TESTS={script}", f"PACKAGE_VERSION={version}"]
    process = subprocess.Popen(
        before + make, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        out, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "HANG"
    found = VERDICT.search(out.decode(errors="replace"))
    return found.group(1) if found else "ERROR"


def all_of(tree, names, version, before, what):
    ends = {}
    for at, name in enumerate(names):
        ends[name] = run(tree, name, version, before)
        print(f"\r{what}: {at + 1} of {len(names)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return ends


def exchange(tree, bcmr):
    for name in PROGRAMS:
        path = os.path.join(tree, "src", name)
        shutil.move(path, path + ".gnu")
        if name == "ginstall":
            # It is called so in the tree alone.
            with open(path, "w", encoding="utf-8") as script:
                script.write(f'#!/bin/bash\nexec -a install "{tree}/src/cp" "$@"\n')
            os.chmod(path, 0o755)
        else:
            shutil.copy(bcmr, path)


def put_back(tree):
    for name in PROGRAMS:
        path = os.path.join(tree, "src", name)
        if os.path.exists(path + ".gnu"):
            os.replace(path + ".gnu", path)


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask gnu scripts", description=__doc__)
    parser.add_argument("tree", help="a built coreutils source tree")
    parser.add_argument("--bcmr", required=True)
    parser.add_argument("--user", type=int, help="run them as this user, who must own the tree; needs root")
    parser.add_argument("scripts", nargs="*", help="only these (tests/cp/backup-1.sh)")
    typed = parser.parse_args()
    tree = os.path.abspath(typed.tree)
    names = typed.scripts or scripts(tree)
    before = []
    if typed.user is not None:
        user = str(typed.user)
        before = ["setpriv", "--reuid", user, "--regid", user, "--groups", f"{user},100", "env", f"HOME={tree}"]
    with open(os.path.join(tree, ".tarball-version"), encoding="utf-8") as said:
        theirs = said.read().strip()
    said = subprocess.run([typed.bcmr, "--version"], capture_output=True, text=True, check=True)
    ours = said.stdout.split()[1]
    gnus = all_of(tree, names, theirs, before, f"coreutils {theirs}")
    exchange(tree, os.path.abspath(typed.bcmr))
    try:
        own = all_of(tree, names, ours, before, f"bcmr {ours}")
        # A makefile that finds them older than their sources makes GNU's again.
        if not all(filecmp.cmp(typed.bcmr, os.path.join(tree, "src", name)) for name in PROGRAMS[:3]):
            print("not ours were run: nothing was measured")
            return 77
    finally:
        put_back(tree)
    passed = [name for name in names if gnus[name] == "PASS"]
    same = [name for name in passed if own[name] == "PASS"]
    for name in names:
        if own[name] != gnus[name]:
            print(f"{name}: GNU's {gnus[name]}, ours {own[name]}" + ": by design: " * (name in BY_DESIGN) + BY_DESIGN.get(name, ""))
    if not passed:
        print("GNU's own programs pass none here: nothing was measured")
        return 77
    share = 100.0 * len(same) / len(passed)
    print(f"{len(same)} of the {len(passed)} scripts that GNU's pass, of {len(names)}: {share:.1f} %")
    return 0 if all(name in same or name in BY_DESIGN for name in passed) else 1


if __name__ == "__main__":
    sys.exit(main())
