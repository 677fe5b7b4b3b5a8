"""Cache misses per operator while a model is initialised, inline against serial: does keeping host reads and device setups apart
keep caches warm?

    python3 docs/cache_misses.py [--model DIR] [--modes inline,serial] [--runs 2] [--engine npu-only]

Counts with the processor's own counters through `perf stat` where the kernel gives them, else by simulation with
`valgrind --tool=cachegrind`, which runs one thread at a time, some 50 times slower, and needs no special rights. The simulated
caches are those that one core has to itself: 32 KiB of first-level data cache and, as LL, 1 MiB of second-level cache (--d1, --ll).

Each run is a fresh `init-bench` process that initialises the model and ends. The counts are of the whole process, with the loading of
ONNX Runtime and of the tokenizer, which is the same in every mode: divided by the number of operators they are upper bounds, and
the difference between modes is exact. Times that the process prints under the simulation mean nothing.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PERF_EVENTS = {"D1": "L1-dcache-load-misses:u", "LL": "LLC-load-misses:u"}


def build():
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "examples", "--bin", "init-bench"], cwd=ROOT, check=True)
    return os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "init-bench")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = [line for line in done.stderr.splitlines() if not line.startswith(("--", "=="))]
        sys.exit(f"{command[0]} ended with {done.returncode}: " + "\n".join(words))
    return done


def operators(row):
    """How many operators were set up, by the row that init-bench prints."""
    types = json.loads(row)["operator_types"]
    return sum(cost["n"] for name, cost in types.items() if not name.startswith("text "))


def with_perf(program):
    done = run(["perf", "stat", "-x,", "-e", ",".join(PERF_EVENTS.values()), *program])
    counts = {}
    for line in done.stderr.splitlines():
        fields = line.split(",")
        for name, event in PERF_EVENTS.items():
            if len(fields) > 2 and fields[2] == event and fields[0].isdigit():
                counts[name] = int(fields[0])
    return counts, operators(done.stdout)


def perf_counts():
    """Whether perf is here and the kernel gives it the counters."""
    if not shutil.which("perf"):
        return False
    done = subprocess.run(
        ["perf", "stat", "-x,", "-e", ",".join(PERF_EVENTS.values()), "true"], capture_output=True, text=True, check=False
    )
    return done.returncode == 0 and "<not" not in done.stderr


def with_cachegrind(program, d1, ll):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        options = ["--tool=cachegrind", "--cache-sim=yes", f"--cachegrind-out-file={out}", f"--I1={d1}", f"--D1={d1}", f"--LL={ll}"]
        done = run(["valgrind", "--quiet", *options, *program])
        with open(out, encoding="utf-8") as file:
            lines = dict(line.split(":", 1) for line in file if line.startswith(("events:", "summary:")))
    counts = dict(zip(lines["events"].split(), map(int, lines["summary"].split())))
    misses = {"D1": counts["D1mr"] + counts["D1mw"], "LL": counts["ILmr"] + counts["DLmr"] + counts["DLmw"]}
    return misses | {"instructions": counts["Ir"]}, operators(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=os.path.join(ROOT, "tests", "fixtures", "models", "qwen3-tiny-int4"))
    parser.add_argument("--modes", default="inline,serial")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--engine", default="npu-only")
    parser.add_argument("--d1", default="32768,8,64", help="bytes, ways, bytes of a line")
    parser.add_argument("--ll", default="1048576,8,64", help="bytes, ways, bytes of a line")
    parser.add_argument("--program", help="init-bench, if it is built already")
    args = parser.parse_args()

    use_perf = perf_counts()
    if not use_perf and not shutil.which("valgrind"):
        sys.exit("the kernel gives no hardware counters, and there is no valgrind: install valgrind")
    tool = "perf stat" if use_perf else f"cachegrind, D1 {args.d1}, LL {args.ll}"
    init_bench = args.program or build()
    print(f"{args.model}, {args.engine}, {tool}")

    means = {}
    for mode in args.modes.split(","):
        for number in range(1, args.runs + 1):
            program = [init_bench, "--child", mode, "--measure", "init", "--model", args.model, "--engine", args.engine]
            counts, n_operators = with_perf(program) if use_perf else with_cachegrind(program, args.d1, args.ll)
            parts = ", ".join(f"{count:>12,} {name}" for name, count in counts.items())
            each = ", ".join(f"{counts[name] / n_operators:>10,.0f} {name}" for name in PERF_EVENTS if name in counts)
            print(f"{mode:<11} run {number}: {parts}; per operator ({n_operators}): {each}", flush=True)
            for name, count in counts.items():
                means.setdefault(name, {}).setdefault(mode, []).append(count / n_operators)
    for name, modes in means.items():
        average = {mode: sum(counts) / len(counts) for mode, counts in modes.items()}
        first = next(iter(average))
        for mode in list(average)[1:]:
            change = average[mode] - average[first]
            spread = max(max(counts) - min(counts) for counts in modes.values())
            print(
                f"{name}: {mode} takes {change:+,.0f} per operator against {first} ({100 * change / average[first]:+.2f} %); "
                f"runs of one mode differ by up to {spread:,.0f}"
            )


if __name__ == "__main__":
    main()
