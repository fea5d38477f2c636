#!/usr/bin/env python3
"""budget.py -- budget against time: the table of bench/NOTES.md, for any model.

    bench/budget.py --gen build/release/gen --steps 2 --repeats 3 --rows model.tsr:4G model.tsr:80M model:80M

A row is MODEL:BUDGET. Runs alternate (every row once, then again), so that a machine that slows down slows all rows;
the table has medians, and the share of the first row's speed, over the whole run and over a step. Pictures are compared
pixel for pixel. "others" is the processor time that was not ours while a row ran, in cores: above 0.1 the figures are
those of a busy machine. --keep writes every run's report there. Standard library only."""

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile

TICK = os.sysconf("SC_CLK_TCK")


def busy_seconds():
    """Processor seconds of the machine so far, all but idle and waiting for disks."""
    with open("/proc/stat") as f:
        t = [int(x) for x in f.readline().split()[1:9]]
    return (sum(t) - t[3] - t[4]) / TICK


def pixels(path):
    """The compressed pixels: equal for equal pictures of one encoder, whatever the texts beside them."""
    data, at, out = open(path, "rb").read(), 8, b""
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at : at + 8])
        if kind == b"IDAT":
            out += data[at + 8 : at + 8 + n]
        at += 12 + n
    return out


def run(a, row, folder):
    model, budget = row.rsplit(":", 1)
    png, report = os.path.join(folder, "x.png"), os.path.join(folder, "x.json")
    command = [a.gen, "--model", model, "--budget", budget, "--prompt", a.prompt, "--steps", str(a.steps), "--scheduler",
               "ddim", "--seed", "1", "--out", png, "--report", report, "--quiet"] + a.more
    before = busy_seconds()
    child = subprocess.Popen(command)
    _, status, use = os.wait4(child.pid, 0)
    if status:
        sys.exit("failed: " + " ".join(command))
    others = busy_seconds() - before - use.ru_utime - use.ru_stime
    r = json.load(open(report))
    phase = {p["name"]: p for p in r["phases"]}
    r["others"] = max(0.0, others) / r["seconds_total"]
    r["cpu"] = use.ru_utime + use.ru_stime
    r["step"] = 1 / r["steps_per_second"] if r["steps_per_second"] else 0.0
    r["decode"] = phase["decode"]["seconds"]
    r["waiting"] = sum(p["seconds_waiting_for_weights"] for p in r["phases"])
    r["predicted"] = sum(p["predicted_seconds"] for p in r["phases"])
    return r, pixels(png)


def say(rows, runs):
    first = {k: statistics.median(r[k] for r in runs[rows[0]]) for k in ("seconds_total", "step")}
    print("| checkpoint, budget | peak, 10^6 bytes | s in all | speed | s a step | speed | decode | predicted | streamed | spilled "
          "| waiting | core-s of I/O | core-s in all | others |")
    print("|" + " --- |" * 14)
    for row in rows:
        m = {k: statistics.median(r[k] for r in runs[row]) for k in runs[row][0] if isinstance(runs[row][0][k], (int, float))}
        peak = max(r["measured_peak_bytes"] for r in runs[row])
        print("| %s | %.1f | %.1f | %.3f | %.2f | %.3f | %.1f s | %.1f s | %.2f GB | %.2f GB | %.2f s | %.2f | %.1f | %.2f |" % (
            os.path.basename(row), peak / 1e6, m["seconds_total"], first["seconds_total"] / m["seconds_total"], m["step"],
            first["step"] / m["step"] if m["step"] else 0, m["decode"], m["predicted"], m["bytes_streamed"] / 1e9,
            m["bytes_spilled"] / 1e9, m["waiting"], m["io_core_seconds"], m["cpu"], m["others"]), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--gen", default="build/release/gen")
    p.add_argument("--rows", nargs="+", required=True, metavar="MODEL:BUDGET")
    p.add_argument("--steps", type=int, default=2)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--prompt", default="a photograph of an astronaut riding a horse")
    p.add_argument("--keep", metavar="DIR")
    p.add_argument("more", nargs="*", help="after --: further options of gen")
    a = p.parse_args()
    runs, picture = {row: [] for row in a.rows}, None
    with tempfile.TemporaryDirectory() as folder:
        for i in range(a.repeats):
            for row in a.rows:
                r, got = run(a, row, folder)
                runs[row].append(r)
                if a.keep:
                    os.makedirs(a.keep, exist_ok=True)
                    json.dump(r, open(os.path.join(a.keep, "%s-%d.json" % (os.path.basename(row), i)), "w"))
                print("%s: %.1f s, step %.3f, decode %.2f, others %.2f" % (row, r["seconds_total"], r["step"], r["decode"], r["others"]),
                      file=sys.stderr, flush=True)
                if picture is None:
                    picture = got
                elif got != picture:
                    sys.exit(row + " made another picture than " + a.rows[0])
    say(a.rows, runs)
    print("\nThe same pixels in every run.")


main()
