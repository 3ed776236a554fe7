#!/usr/bin/env python3
"""kill -9 at random moments, in full parallel speed, and then the same command again.

  torn           after the kill a final name holds something that is neither absent nor whole
  rerun          the second run does not end well
  rerun-litter   it does, and leaves something that is not in the source
What a killed run leaves for the second one is counted as `left`, and is no violation.
"""
import os, random, signal, subprocess, time
from lab import Lab, Verdict, arguments, remove, snapshot, write

LINES = {
    "cp": ["cp", "-a", "{s}/big", "{s}/t", "{d}/"], "rsync": ["rsync", "-a", "{s}/", "{d}/"],
    "bcmr": ["{bcmr}", "copy", "--archive", "-q", "{s}/big", "{s}/t", "{d}/"],
    "bcmr-plain": ["{bcmr}", "copy", "-r", "-q", "{s}/big", "{s}/t", "{d}/"],
    "bcmr-sync": ["{bcmr}", "copy", "-r", "-q", "--sync", "{s}/big", "{s}/t", "{d}/"],
    "bcmr-resume": ["{bcmr}", "copy", "-r", "-q", "-C", "--checkpoint-size", "4M", "{s}/big", "{s}/t", "{d}/"],
}


def main():
    a = arguments(__doc__)
    a.add_argument("--runs", type=int)
    o = a.parse_args()
    runs = o.runs or (30 if o.quick else 300)
    verdict, dice = Verdict("kill", o.tool, o.show), random.Random(1)
    for tool, line in LINES.items():
        if tool.split("-")[0] != o.tool:
            continue
        with Lab(o) as lab:
            src, dst = lab.path("src"), lab.path("dst")
            command = [w.format(s=src, d=dst, bcmr=o.bcmr) for w in line]
            write(src + "/big", os.urandom(24 << 20))
            for i in range(200):
                write(f"{src}/t/d{i % 7}/f{i}", os.urandom(dice.randrange(60_000)))
            new, took = snapshot(src), []
            for _ in range(3):
                remove(dst)
                os.makedirs(dst)
                begun = time.time()
                rc, err = lab.run(command)
                took.append(time.time() - begun)
                if rc or snapshot(dst) != new:
                    verdict.add("undisturbed", (rc, err[-300:]))
            whole, killed, left = sorted(took)[1], 0, 0
            for n in range(runs):
                remove(dst)
                os.makedirs(dst)
                p = subprocess.Popen(command, env=lab.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, start_new_session=True)
                time.sleep(dice.uniform(0, whole * 1.05))
                try:
                    os.killpg(p.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                killed += p.wait() == -9
                got = snapshot(dst)
                for k, v in got.items():
                    if v[0] == "file" and k in new and v != new[k]:
                        verdict.add("torn", (n, k))
                left += any(k not in new for k in got)
                rc, err = lab.run(command)
                again = snapshot(dst)
                if rc or any(again.get(k) != v for k, v in new.items()):
                    verdict.add("rerun", (n, rc, err[-200:]))
                elif again != new:
                    verdict.add("rerun-litter", (n, [k for k in again if k not in new]))
            verdict.say(line=tool, runs=runs, killed=killed, left=left, one_run_ms=round(whole * 1000))
    verdict.exit()


main()
