#!/usr/bin/env python3
"""Samples a second out of Parquet and out of tars of the same samples, in one run.

    bazel build --config=opt //server:ballast-server //client/ballastctl
    tests/benchmarks/compare_formats.py [--samples 512] [--rounds 5]

Draws receipts in both formats. In each round each format has a server of its own, of
which one rank pulls vision and language for an epoch or eight; formats take turns. Prints the
medians, by the processor time of the server and by the clock, for servers that decode
the images (`pixels`) and for servers that send them as they are (`encoded`), of which
reading is all the work. Files are in the system's memory.
"""

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import tempfile
import time

CONFIG = """
sources: [{{name: docs, format: {form}, path: "docs-*.{extension}"{more}}}]
model: {{profile: qwen2_5_vl, tokenizer: bytes{model}}}
batch: {{global: 32, micro: 8, max_tokens: 16384}}
topology: {{modules: {{vision: {{dp: 1}}, language: {{dp: 1}}}}}}
serve: {{listen: ["127.0.0.1:0"], memory: 512MiB, row_group_memory: 48MiB}}
"""
FORMATS = {"tar": "webdataset", "parquet": "parquet"}
# Few row groups at a time, so that each epoch decodes each of them once, as in a set
# that is larger than memory.
MORE = {"tar": "", "parquet": ", shuffle_groups: 4"}
MODES = {"pixels": "", "encoded": ", decode: device, device_unchecked: true"}
EPOCHS = {"pixels": 1, "encoded": 8}


class Programs:
    def __init__(self, folder):
        found = [os.path.join(folder, inner, "ballast-server") for inner in ("server", "")]
        self.server = next(path for path in found if os.path.exists(path))
        found = [os.path.join(folder, inner, "ballastctl") for inner in ("client/ballastctl", "")]
        self.ctl = next(path for path in found if os.path.exists(path))


def spent(pid):
    """Seconds of processor time of a process."""
    with open("/proc/%d/stat" % pid, encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid):
    """The peak of its resident memory, in MB."""
    with open("/proc/%d/status" % pid, encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0


@contextlib.contextmanager
def serving(programs, config):
    with subprocess.Popen(
        [programs.server, "serve", "--config", config],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        try:
            yield process, process.stdout.readline().split()[1]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def pull(programs, config, steps, check=None):
    """Processor time of the server, time by the clock, and its peak of memory. `check`
    gets the server's address before it ends."""
    with serving(programs, config) as (process, address):
        before, start = spent(process.pid), time.monotonic()
        pulls = [
            subprocess.Popen(
                [programs.ctl, "--server", address, "pull", "--module", module,
                 "--dp-rank", "0", "--step", "0", "--steps", str(steps), "--json"],
                stdout=subprocess.DEVNULL,
            )
            for module in ("vision", "language")
        ]  # fmt: skip
        for one in pulls:
            if one.wait() != 0:
                raise SystemExit("ballastctl pull failed")
        figures = (
            # Of few samples it may be less than the system counts.
            max(spent(process.pid) - before, 1 / os.sysconf("SC_CLK_TCK")),
            time.monotonic() - start, resident(process.pid),
        )  # fmt: skip
        if check is not None:
            check(address)
        return figures


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bin", default="bazel-bin", help="the folder of the programs")
    options = parser.parse_args()
    programs = Programs(options.bin)
    steps = options.samples // 32
    samples = steps * 32
    with tempfile.TemporaryDirectory() as work:
        configs, size = {}, {}
        for extension, form in FORMATS.items():
            folder = os.path.join(work, form)
            subprocess.run(
                [programs.server, "make-corpus", "--out", folder, "--preset", "receipts",
                 "--samples", str(samples), "--format", form],
                check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            size[extension] = sum(
                os.path.getsize(os.path.join(folder, name))
                for name in os.listdir(folder) if name.endswith(extension)
            )  # fmt: skip
            for mode, model in MODES.items():
                config = os.path.join(folder, mode + ".yaml")
                with open(config, "w", encoding="utf-8") as file:
                    file.write(
                        CONFIG.format(
                            form=form, extension=extension, more=MORE[extension], model=model
                        )
                    )
                subprocess.run(
                    [programs.server, "index", "--config", config],
                    check=True,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                configs[mode, extension] = config
        sizes = ", ".join("%s %.0f MB" % (k, v / 1e6) for k, v in size.items())
        print("%d samples; %s" % (samples, sizes))
        for mode in MODES:
            results = {extension: [] for extension in FORMATS}
            for number in range(options.rounds):
                order = list(FORMATS) if number % 2 == 0 else list(FORMATS)[::-1]
                for extension in order:
                    results[extension].append(
                        pull(programs, configs[mode, extension], steps * EPOCHS[mode])
                    )
            for extension, rounds in results.items():
                cpu, clock, memory = (statistics.median(r[i] for r in rounds) for i in range(3))
                cpu /= EPOCHS[mode]
                clock /= EPOCHS[mode]
                print(
                    "%-8s %-8s %7.1f samples/s of processor time (%.2f s an epoch), %6.0f MB/s; "
                    "%7.1f samples/s by the clock; peak %4.0f MB"
                    % (mode, extension, samples / cpu, cpu, size[extension] / cpu / 1e6,
                       samples / clock, memory)
                )  # fmt: skip
            pairs = [t[0] / p[0] for t, p in zip(results["tar"], results["parquet"])]
            print(
                "%-8s parquet over tar, of processor time: median %.2f, %.2f to %.2f"
                % (mode, statistics.median(pairs), min(pairs), max(pairs))
            )
        with open("/proc/loadavg", encoding="ascii") as file:
            print("load of the machine at the end: " + file.read().split()[0])


if __name__ == "__main__":
    main()
