"""Measures a node: one server at several numbers of threads, ranks that pull to the
GPUs, and the machine's Python on the same files. Prints a table; --out receives JSON.

    tests/benchmarks/node/run.sh run --threads 1,8,32,64 --out node.json
"""

import argparse
import glob
import json
import os
import re
import resource
import site
import subprocess
import sys
import tempfile
import time

CONFIG = """
sources: [{source}]
model: {{profile: qwen2_5_vl, tokenizer: bytes, max_pixels: {max_pixels}, decode: {decode}}}
batch: {{global: {global_batch}, micro: {global_batch}, max_tokens: 65536}}
topology: {{modules: {{vision: {{dp: {ranks}}}, language: {{dp: {ranks}}}}}}}
balance: {{delivery: {delivery}}}
serve: {{threads: {threads}, memory: {memory_mib}MiB, prefetch_steps: 8}}
"""
WARM_S = 15
PACE = re.compile(
    r"the later half, in ([\d.]+) s: ([\d.]+) images/s, ([\d.]+) MiB/s read; "
    r"Next took ([\d.]+) ms in the median, ([\d.]+) ms at p99, ([\d.]+) ms at most"
)
TOTAL = re.compile(r"(\d+) samples, (\d+) images in ([\d.]+) s")
TICKS = os.sysconf("SC_CLK_TCK")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--threads", default="1,8,32,64,96,128")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--corpora", default="shared,receipts,mixed")
    parser.add_argument("--backend", default="cuda", choices=["cuda", "host"])
    parser.add_argument("--delivery", default="exchange")
    parser.add_argument("--decode", default="host", choices=["host", "device"],
                        help="model.decode")  # fmt: skip
    parser.add_argument("--samples", type=int, default=256, help="of a drawn corpus")
    parser.add_argument("--samples-a-rank", type=int, default=8, help="and micro-batch")
    parser.add_argument("--memory", type=int, default=4096, help="the server's, MiB")
    parser.add_argument("--max-bytes", type=int, default=128, help="a rank's, MiB")
    parser.add_argument("--max-pixels", type=int, default=1003520)
    parser.add_argument("--seconds", type=float, default=6, help="of each run, about")
    parser.add_argument("--baselines", default="processor,torchvision,pillow,dali")
    parser.add_argument("--until", type=float, default=540, help="s; starts no run after")
    parser.add_argument("--out")
    return parser.parse_args()


class Node:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.begin = time.monotonic()
        self.cores = len(os.sched_getaffinity(0))
        libraries = [os.path.abspath(f"{options.bundle}/lib")]
        for root in dict.fromkeys(sys.path + site.getsitepackages()):
            libraries += glob.glob(root + "/nvidia/*/lib")
        libraries += ["/usr/local/nvidia/lib64", "/usr/local/cuda/lib64"]
        before = os.environ.get("LD_LIBRARY_PATH")
        self.environment = dict(
            os.environ,
            LD_LIBRARY_PATH=":".join(libraries + ([before] if before else [])),
            NCCL_NVLS_ENABLE="0",
        )

    def left(self):
        return self.options.until - (time.monotonic() - self.begin)

    def program(self, name):
        return os.path.abspath(f"{self.options.bundle}/bin/{name}")

    def run(self, name, *arguments):
        return subprocess.run(
            [self.program(name), *map(str, arguments)], env=self.environment,
            check=True, capture_output=True, text=True, timeout=300,
        ).stdout  # fmt: skip

    def corpus(self, name):
        """The folder of a corpus and its source in YAML; None without it."""
        if name == "shared":
            folder = os.path.abspath(f"{self.options.bundle}/corpus")
            if not os.path.exists(f"{folder}/samples.jsonl"):
                return None, None
            return folder, (f'{{name: shared, format: jsonl, media_root: "{folder}", '
                            f'path: "{folder}/samples.jsonl"}}')  # fmt: skip
        folder = f"{self.folder}/{name}"
        self.run("ballast-server", "make-corpus", "--out", folder, "--samples",
                 self.options.samples, "--preset", name)  # fmt: skip
        return folder, f'{{name: drawn, format: webdataset, path: "{folder}/*.tar"}}'

    def config(self, name, source, threads):
        path = f"{self.folder}/{name}-{threads}.yaml"
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(
                source=source, threads=threads, ranks=self.options.ranks,
                global_batch=self.options.ranks * self.options.samples_a_rank,
                max_pixels=self.options.max_pixels, delivery=self.options.delivery,
                memory_mib=self.options.memory, decode=self.options.decode,
            ))  # fmt: skip
        return path

    def serve(self, name, source, threads, steps):
        """One run of a server with the given number of threads."""
        config = self.config(name, source, threads)
        address = f"unix:{self.folder}/s.sock"
        with subprocess.Popen(
            [self.program("ballast-server"), "serve", "--config", config, "--listen",
             address], env=self.environment, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        ) as server:  # fmt: skip
            try:
                if not server.stdout.readline().startswith("ready"):
                    raise RuntimeError(server.stderr.read())
                self.warm(address, server.pid)
                before, ranks = usage(server.pid), children_seconds()
                text = self.run("ballast-rank", "--server", address, "--step", 1 << 30,
                                "--steps", steps,
                                "--backend", self.options.backend,
                                "--max-bytes", self.options.max_bytes << 20)  # fmt: skip
                after = usage(server.pid)
                ranks = children_seconds() - ranks
            finally:
                server.kill()
        pace, total = PACE.search(text), TOTAL.search(text)
        if pace is None:
            raise RuntimeError(text)
        images = int(total.group(2))
        return {
            "threads": threads,
            "steps": steps,
            "images": images,
            "seconds": float(pace.group(1)),
            "images_s": float(pace.group(2)),
            "read_mib_s": float(pace.group(3)),
            "next_ms": {"median": float(pace.group(4)), "p99": float(pace.group(5)),
                        "longest": float(pace.group(6))},
            "user_ms_image": 1000 * (after["user"] - before["user"]) / images,
            "system_ms_image": 1000 * (after["system"] - before["system"]) / images,
            "faults_image": (after["faults"] - before["faults"]) / images,
            "ranks_ms_image": 1000 * ranks / images,
            "resident_mib": after["resident_mib"],
            "own_mib": after["own_mib"],
        }  # fmt: skip

    def warm(self, address, server):
        """Pulls until the server has used all its memory once: the first touch of a
        page costs as much as decoding does."""
        with subprocess.Popen(
            [self.program("ballastctl"), "--server", address, "pull", "--module",
             "vision", "--dp-rank", "0", "--step", "0", "--steps", "1000000"],
            env=self.environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as pull:  # fmt: skip
            end = time.monotonic() + WARM_S
            while time.monotonic() < end and pull.poll() is None:
                if usage(server)["shared_mib"] > 0.95 * self.options.memory:
                    break
                time.sleep(0.2)
            pull.kill()

    def measure(self, name):
        folder, source = self.corpus(name)
        if folder is None:
            return None
        config = self.config(name, source, 0)
        self.run("ballast-server", "index", "--config", config)
        if self.options.decode == "device":
            self.run("ballast-server", "index", "--config", config, "--check")
        runs = []
        guess = 100.0  # images/s of a thread
        for threads in self.options.threads:
            if self.left() < 30:
                break
            # The later half is measured; at least this many steps, so that
            # blocks prepared in advance are no part of it.
            images = 2 * guess * threads * self.options.seconds
            step = self.options.ranks * self.options.samples_a_rank
            steps = max(96, int(images / step))
            run = self.serve(name, source, threads, steps)
            guess = run["images_s"] / threads
            run["efficiency"] = (run["images_s"] / threads
                                 / (runs[0]["images_s"] / runs[0]["threads"])
                                 if runs else 1.0)  # fmt: skip
            runs.append(run)
            print(name, json.dumps(run), flush=True)
        return {"ballast": runs, "decoding": self.decoding(name),
                "baselines": self.baselines(folder)}  # fmt: skip

    def decoding(self, name):
        """Measures decoding without a server, and libjpeg-turbo alone, as the limit of
        the machine's processors. Over the shared corpus, or one like `receipts`."""
        if name not in ("shared", "receipts") or self.left() < 60:
            return []
        environment = dict(self.environment)
        if name == "shared":
            environment["BALLAST_SHARED_DIR"] = os.path.abspath(self.options.bundle)
        wanted = "|".join(f"threads:{n}/" for n in self.options.threads)
        done = subprocess.run(
            [self.program("thread_scaling_benchmark"), "--benchmark_format=json",
             f"--benchmark_filter={wanted}"],
            env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            print(f"no decoding alone: {done.stderr[-300:]}", file=sys.stderr)
            return []
        results = [
            {"threads": int(re.search(r"threads:(\d+)", run["name"]).group(1)),
             **{key: run[key] for key in ("images/s", "efficiency",
                                          "libjpeg_efficiency", "over_libjpeg")}}
            for run in json.loads(done.stdout)["benchmarks"]
        ]  # fmt: skip
        for result in results:
            print(name, json.dumps(result), flush=True)
        return results

    def baselines(self, folder):
        results = []
        for kind in filter(None, self.options.baselines.split(",")):
            if kind == "dali":
                if self.options.backend == "cuda" and self.left() > 40:
                    results += self.dali(folder)
                continue
            # (workers, processes that take their batches to GPUs).
            ways = [(1, 0)]
            if kind != "pillow":
                ranks = self.options.ranks if self.options.backend == "cuda" else 0
                ways = [(self.cores // 2, 0), (self.cores, 0), (self.cores, ranks)]
            for workers, ranks in dict.fromkeys(ways):
                if self.left() < 40:
                    return results
                done = subprocess.run(
                    [sys.executable, f"{self.options.bundle}/node/baseline.py", folder,
                     "--kind", kind, "--workers", str(workers), "--ranks", str(ranks),
                     "--max-pixels", str(self.options.max_pixels), "--seconds",
                     str(self.options.seconds)],
                    capture_output=True, text=True, timeout=120, check=False,
                )  # fmt: skip
                if done.returncode != 0:
                    print(f"no {kind}: {done.stderr[-300:]}", file=sys.stderr)
                    break
                results.append(json.loads(done.stdout.splitlines()[-1]))
                print(json.dumps(results[-1]), flush=True)
        return results

    def dali(self, folder):
        """DALI on one GPU, in batches like a rank's and of 32."""
        results = []
        for batch in dict.fromkeys((self.options.samples_a_rank, 32)):
            done = subprocess.run(
                [sys.executable, f"{self.options.bundle}/node/dali_baseline.py", folder,
                 "--batch", str(batch), "--max-pixels", str(self.options.max_pixels),
                 "--seconds", str(self.options.seconds)],
                capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            if done.returncode != 0:
                print(f"no DALI: {done.stderr[-300:]}", file=sys.stderr)
                break
            result = json.loads(done.stdout.splitlines()[-1])
            print(json.dumps(result), flush=True)
            if "absent" in result:
                break
            results.append(dict(result, workers=result["threads"], ranks=1))
        return results


def children_seconds():
    """Processor time of child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def usage(process):
    with open(f"/proc/{process}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    memory = {}
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        for line in file:
            key, value = line.split(":", 1)
            if key in ("VmRSS", "RssAnon", "RssShmem"):
                memory[key] = int(value.split()[0]) / 1024
    return {
        "faults": int(fields[7]),
        "user": int(fields[11]) / TICKS,
        "system": int(fields[12]) / TICKS,
        "resident_mib": memory["VmRSS"],
        "own_mib": memory["RssAnon"],
        "shared_mib": memory["RssShmem"],
    }


def table(results):
    rows = [("corpus", "threads", "images/s", "efficiency", "CPU ms/image",
             "of it system", "ranks' CPU ms", "faults/image", "read MiB/s",
             "Next p99 ms",
             "longest ms", "own MiB")]  # fmt: skip
    for name, result in results.items():
        for run in result["ballast"]:
            cpu = run["user_ms_image"] + run["system_ms_image"]
            rows.append((
                name, run["threads"], f"{run['images_s']:.0f}",
                f"{run['efficiency']:.2f}", f"{cpu:.2f}",
                f"{run['system_ms_image']:.2f}", f"{run['ranks_ms_image']:.2f}",
                f"{run['faults_image']:.0f}",
                f"{run['read_mib_s']:.0f}", f"{run['next_ms']['p99']:.1f}",
                f"{run['next_ms']['longest']:.1f}", f"{run['own_mib']:.0f}",
            ))  # fmt: skip
        for run in result["decoding"]:
            rows.append((name, f"{run['threads']}, no server", f"{run['images/s']:.0f}",
                         f"{run['efficiency']:.2f}",
                         f"libjpeg {run['libjpeg_efficiency']:.2f}")
                        + ("",) * 7)  # fmt: skip
        for base in result["baselines"]:
            to = f", {base['ranks']} ranks' GPUs" if base["ranks"] else ""
            rows.append((name, f"{base['workers']} workers", f"{base['images_s']:.0f}",
                         base["kind"] + to) + ("",) * 8)  # fmt: skip
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(str(cell).rjust(width) for cell, width in zip(row, widths)) for row in rows
    )


def main():
    options = parse()
    with tempfile.TemporaryDirectory(prefix="ballast", dir="/tmp") as folder:
        node = Node(options, folder)
        # Limited to the machine's cores; the last value is all of them.
        options.threads = sorted({
            min(int(n), node.cores) for n in options.threads.split(",")
        })  # fmt: skip
        results = {}
        for name in options.corpora.split(","):
            if node.left() < 60:
                break
            result = node.measure(name)
            if result is not None:
                results[name] = result
            if options.out:
                with open(options.out, "w", encoding="utf-8") as file:
                    json.dump({"cores": node.cores, "results": results}, file, indent=1)
    print(table(results))


if __name__ == "__main__":
    main()
