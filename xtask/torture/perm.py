#!/usr/bin/env python3
"""Permission windows: a private tree is copied, and at every call of the tool another user looks at the destination.

  open     a file with content, or a directory, is open wider than its source ever was
  setuid   a setuid or setgid file does not (yet) belong to its owner
"""
import os, subprocess
from lab import Lab, Verdict, arguments, remove, skip, write

LINES = {
    "cp": ["cp", "-a", "{s}/p", "{d}/"], "rsync": ["rsync", "-a", "{s}/p", "{d}/"], "mv": ["mv", "{s}/p", "{d}/"],
    "bcmr": ["{bcmr}", "copy", "--archive", "-q", "{s}/p", "{d}/"],
    "bcmr-serial": ["{bcmr}", "copy", "--archive", "-q", "-j", "1", "{s}/p", "{d}/"],
    "bcmr-p": ["{bcmr}", "copy", "-r", "-p", "-q", "{s}/p", "{d}/"],
    "bcmr-plain": ["{bcmr}", "copy", "-r", "-q", "{s}/p", "{d}/"],
    "bcmr-verify": ["{bcmr}", "copy", "--archive", "-V", "--sync", "-q", "{s}/p", "{d}/"],
    "bcmr-move": ["{bcmr}", "move", "-q", "{s}/p", "{d}/"],
}
LOOK = ("find {d} -mindepth 1 \\( \\( -type f -size +0 -o -type d \\) -perm /077 -printf 'open %P %m\\n' \\) , "
        "\\( -type f -perm /6000 ! -uid 1000 -printf 'setuid %P %m %U\\n' \\) >> {seen} 2>/dev/null")


def reset(src, dst, seen):
    for p in (src, dst, seen):
        remove(p)
    os.makedirs(dst)
    for n in ("a", "q/b", "q/r/c"):
        write(f"{src}/p/{n}", b"secret" * 9000)
        os.chmod(f"{src}/p/{n}", 0o600)
    write(f"{src}/p/suid", b"program")
    os.chown(f"{src}/p/suid", 1000, 1000)
    os.chmod(f"{src}/p/suid", 0o6700)
    for n in ("p/q/r", "p/q", "p"):
        os.chmod(f"{src}/{n}", 0o700)


def main():
    o = arguments(__doc__).parse_args()
    os.umask(0o022)
    verdict = Verdict("perm", o.tool, o.show)
    for tool, line in LINES.items():
        if tool.split("-")[0] != o.tool:
            continue
        with Lab(o) as lab:
            top, seen = lab.path("w"), lab.path("seen")
            src, dst = top + "/src", top + "/far/dst"
            lab.mount(top + "/far", "-t", "tmpfs", "-o", "mode=0755", "none")
            command = [w.format(s=src, d=dst, bcmr=o.bcmr) for w in line]
            reset(src, dst, seen)
            calls, (rc, err) = lab.calls(command, top)
            if rc:
                verdict.add("undisturbed", (rc, err[-300:]))
            for k in range(1, len(calls) + 1, 3 if o.quick else 1):
                reset(src, dst, seen)
                lab.fault(command, top, k, "hook", hook=LOOK.format(d=dst, seen=seen), timeout=60)
                if os.path.exists(seen):
                    with open(seen) as f:
                        for text in f.read().splitlines():
                            verdict.add(text.split(" ")[0], (k, *calls[k - 1], text))
            verdict.say(line=tool, calls=len(calls))
    verdict.exit()


if os.geteuid() != 0:
    skip("files of other owners need root")
main()
