"""compare.py -- the measurements in turn, appended to results.jsonl, and the table of all of them.

Python's standard library only; every measurement is a process of its own (measure.py). What is in the file already is not
measured again, so a run that was stopped goes on. Figures of another build of gen, CPU or thread count stay in the file and
do not count. Ratios are against the median of ours.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ("step", "decode", "text")


def arguments():
    p = argparse.ArgumentParser(prog="bench/peers/run.sh", description="Compares gen with other runtimes on this CPU.")
    p.add_argument("--folder", type=pathlib.Path, required=True, help="where everything is made and kept")
    p.add_argument("--gen", type=pathlib.Path, required=True)
    p.add_argument("--python", type=pathlib.Path, required=True, help="of the environment with the peers")
    p.add_argument("--rounds", type=int, default=5, help="alternations against the fastest peer (default 5)")
    p.add_argument("--under", default="", metavar="CMD", help="put before every measurement: taskset, nice, a lock")
    p.add_argument("--at-most", type=int, default=1000, metavar="N", help="stop after so many measurements")
    p.add_argument("--table", action="store_true", help="only print the table")
    return p.parse_args()


def measure_command(a, what):
    return [str(a.python), str(HERE / "measure.py"), str(a.folder), str(a.gen), what]


def cpuinfo(field):
    match = re.search(rf"^{field}\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return match.group(1) if match else ""


class Results:
    """The lines that count: this CPU, this many threads, this build of gen."""

    def __init__(self, a):
        self.path = a.folder / "results.jsonl"
        self.build = hashlib.sha256(a.gen.read_bytes()).hexdigest()[:12]
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.rows = [r for r in map(json.loads, lines) if self.counts(r)]

    def counts(self, r):
        ours = r["name"].startswith("tessera")
        here = r["cpu"] == cpuinfo("model name") and r["threads"] == len(os.sched_getaffinity(0))
        return r["ok"] and here and (not ours or r["version"] == self.build)

    def of(self, name):
        return [r for r in self.rows if r["name"] == name]

    def add(self, line):
        record = json.loads(line)
        with open(self.path, "a") as f:
            f.write(line + "\n")
        if not record["ok"]:
            sys.exit(f"{record['name']}: its picture is not that of torch in float32, so its times do not count: {line}")
        self.rows.append(record)


def order(names, rounds, results):
    """What is still to be measured: the alternated ones in turn, the others at the end."""
    have = {n: len(results.of(n)) for n in names["alternated"] + names["once"]}
    for i in range(rounds):
        for n in names["alternated"]:
            if have[n] <= i:
                yield n
    for n in names["once"]:
        if not have[n]:
            yield n


def measure_all(a, names, results):
    for n, what in enumerate(order(names, a.rounds, results)):
        if n == a.at_most:
            return
        print(f"measuring {what}", file=sys.stderr)
        done = subprocess.run(shlex.split(a.under) + measure_command(a, what), stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{what} could not be measured")
        results.add(done.stdout.strip().splitlines()[-1])


def seconds(results, name, part):
    """The median; `picture` is 20 steps by arithmetic, row by row."""
    rows = results.of(name)
    if part == "picture":
        return statistics.median(r["text_seconds"] + 20 * r["step_seconds"] + r["decode_seconds"] for r in rows)
    return statistics.median(r[f"{part}_seconds"] for r in rows)


def cell(results, name, part):
    """Seconds, and how many times ours that is."""
    s = seconds(results, name, part)
    if name == "tessera":
        return f"{s:.2f}"
    ours = seconds(results, "tessera", part)
    return f"{s:.2f} ({s / ours:.2f})"


def accuracy(rows):
    worst = max((r["latents_error"] for r in rows if "latents_error" in r), default=None)
    psnr = f"{min(r['psnr'] for r in rows):.0f} dB"
    return psnr if worst is None else f"{worst:.1e}, {psnr}"


def table(names, results):
    all_names = [n for n in names["alternated"] + names["once"] if results.of(n)]
    if "tessera" not in all_names:
        sys.exit("nothing is measured yet")
    ours = results.of("tessera")[0]
    flags = cpuinfo("flags").split()
    print(f"CPU {ours['cpu']}, {ours['threads']} threads, tier {ours['tier']}, {'AMX' if 'amx_tile' in flags else 'no AMX'}")
    print("Stable Diffusion 1.5, hashed weights, 512x512, guidance on; seconds, and in brackets how many times ours")
    print("error: final latents against torch in float32, and the picture's PSNR\n")
    head = ["runtime", "version", "UNet step", "VAE decode", "text", "20 steps", "peak MiB", "error", "runs"]
    rows = [head, ["---"] * len(head)]
    for n in all_names:
        r = results.of(n)
        peak = statistics.median(x["peak_bytes"] for x in r) / 2**20
        rows.append([n, r[-1]["version"], *(cell(results, n, p) for p in (*PARTS, "picture")), f"{peak:.0f}", accuracy(r), str(len(r))])  # fmt: skip
    widths = [max(len(r[i]) for r in rows) for i in range(len(head))]
    for r in rows:
        print("| " + " | ".join(x.ljust(w) for x, w in zip(r, widths)) + " |")
    if "openvino-bf16-default" not in all_names and "openvino-f16-default" not in all_names:
        print("\nOpenVINO's default precision on this CPU is float32.")
    if "torch-bf16" not in all_names and not {"avx512_bf16", "amx_bf16"} & set(flags):
        print("torch has no native bfloat16 on this CPU.")


def main():
    a = arguments()
    names = json.loads(subprocess.run(measure_command(a, "list"), check=True, stdout=subprocess.PIPE, text=True).stdout)
    results = Results(a)
    if not a.table:
        measure_all(a, names, results)
    table(names, results)


if __name__ == "__main__":
    main()
