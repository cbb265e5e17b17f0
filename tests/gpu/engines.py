"""Measures `model.decode: device` from the server to the GPU (docs/measurements/images.md):
tests/gpu/run.sh engines calls this on a machine with a GPU, in at most 8 minutes.

Draws a corpus of receipts, lists the photographs of the shared corpus, indexes and checks
both, starts servers, and runs the benchmarks of the bundle against them. Prints every
figure; --out receives JSON. A measurement that fails is reported, and the next one runs.
"""

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time

CONFIG = """
sources: [{source}]
model: {{profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 1003520, decode: {decode}}}
batch: {{global: {batch}, micro: {batch}, max_tokens: 65536}}
topology: {{modules: {{vision: {{dp: 1}}, language: {{dp: 1}}}}}}
serve: {{memory: {memory}MiB, prefetch_steps: 8, arena: {arena}}}
"""
LEAST_PIXELS = 1_000_000  # of a photograph
REPEATS = 40  # lines for each photograph, so that a step holds each about as often
BASELINE = 0xC0  # the marker of a baseline frame
NOT_FRAMES = (0xC4, 0xC8, 0xCC)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--out", help="folder for results.json and output.txt")
    parser.add_argument("--only", default="photographs,receipts,sweep,dali,tests")
    parser.add_argument("--ways", default="",
                        help="also measure these numbers of engine threads, images of a "
                        "chunk and, if given, chunks of a thread in flight, 0 the "
                        "default; u: not by size: 1x14,0x0x3,0x0u")  # fmt: skip
    parser.add_argument("--shares", default="0.8",
                        help="also measure these values of model.device_share, in "
                        "micro-batches of 32; the default holds for photographs: "
                        "0.8,0.75")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--receipts", type=int, default=512, help="samples to draw")
    parser.add_argument("--until", type=float, default=460, help="s; starts nothing after")
    parser.add_argument("--without-gpu", action="store_true",
                        help="prepare, serve and pull with ballastctl; measure nothing")  # fmt: skip
    return parser.parse_args()


def frame_of(path):
    """The frame marker of a JPEG with its width and height; None if it is no JPEG, or
    holds several pictures, which engines do not take."""
    with open(path, "rb") as file:
        data = file.read()
    at = 2
    while data[:2] == b"\xff\xd8" and at + 9 < len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], struct.unpack(">H", data[at + 2 : at + 4])[0]
        if data[at + 4 : at + 8] == b"MPF\0":
            return None
        if 0xC0 <= marker <= 0xCF and marker not in NOT_FRAMES:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return marker, width, height
        at += 2 + length
    return None


def file_system(folder):
    """The type of the file system that holds a folder."""
    done = subprocess.run(["stat", "-f", "-c", "%T", folder], check=False,
                          capture_output=True, text=True)  # fmt: skip
    return done.stdout.strip() or "unknown"


def says_what_is_in_memory(folder):
    """Whether the file system of a folder reads only what is in memory if asked to."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"x" * 4096)
        file.flush()
        try:
            return os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT) == 1
        except OSError:
            return False


def mount_tmpfs(folder, options):
    """Mounts a tmpfs; returns why it cannot be done, or nothing."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    return "" if done.returncode == 0 else done.stderr.strip() or "mount failed"


def compact(result):
    """One line for each member."""
    if isinstance(result, list):
        return "\n".join(json.dumps(each) for each in result)
    return "\n".join(f"  {key}: {json.dumps(each)}" for key, each in result.items())


class Engines:
    def __init__(self, options, folder):
        self.options = options
        self.bundle = os.path.abspath(options.bundle)
        self.folder = folder
        self.begin = time.monotonic()
        self.results = {}
        self.servers = []
        self.in_memory = None
        self.mounted = []
        self.arena = self.arena_folder()
        room = shutil.disk_usage(self.arena if self.arena != "auto" else "/dev/shm").free
        # For all servers at a time.
        servers = 3 + len(self.shares())
        self.memory_mib = max(64, min(2048, int(0.9 * room / servers) >> 20))
        self.corpora = self.corpus_folder()
        print(f"arena {self.arena}, {room >> 20} MiB free, {self.memory_mib} MiB a "
              f"server; corpora in {self.corpora}, {file_system(self.corpora)}",
              flush=True)  # fmt: skip

    def arena_folder(self):
        """A tmpfs with room for the servers: /dev/shm, or one that is mounted here."""
        if shutil.disk_usage("/dev/shm").free > 8 << 30 or self.options.without_gpu:
            return "auto"
        folder = f"{self.folder}/arena"
        os.makedirs(folder)
        failure = mount_tmpfs(folder, "size=8G")
        if not failure:
            self.mounted.append(folder)
            return folder
        print(f"no tmpfs of our own: {failure}", flush=True)
        return "auto"

    def corpus_folder(self):
        """Where the corpora go. A container's own file system may not say what it has in
        memory, and files then go through a string: a tmpfs if so, of large pages if it can
        be mounted, since the system copies small ones one by one at a third of the speed."""
        if self.options.without_gpu or says_what_is_in_memory(self.folder):
            return self.folder
        large = f"{self.folder}/large_pages"
        os.makedirs(large)
        if not mount_tmpfs(large, "size=2G,huge=always"):
            self.mounted.append(large)
            return large
        if self.arena != "auto":
            os.makedirs(f"{self.arena}/corpora")
            return f"{self.arena}/corpora"
        if shutil.disk_usage("/dev/shm").free < 8 << 30:
            return self.folder
        self.in_memory = tempfile.mkdtemp(prefix="ballast", dir="/dev/shm")
        return self.in_memory

    def shares(self):
        return [float(share) for share in self.options.shares.split(",") if share]

    def close(self):
        self.stop()
        if self.in_memory:
            shutil.rmtree(self.in_memory, ignore_errors=True)
        for folder in self.mounted:
            subprocess.run(["umount", folder], check=False)

    def left(self):
        return self.options.until - (time.monotonic() - self.begin)

    def program(self, kind, name):
        return f"{self.bundle}/{kind}/{name}"

    def run(self, *command, name=None, limit=120):
        """The output of a command, also kept in --out if it has a name."""
        begin = time.monotonic()
        done = subprocess.run(
            [str(part) for part in command], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
            timeout=max(5, min(limit, self.left())),
        )  # fmt: skip
        seconds = time.monotonic() - begin
        if name and self.options.out:
            with open(f"{self.options.out}/output.txt", "a", encoding="utf-8") as file:
                file.write(f"== {name}\n{done.stdout}\n")
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]}: {done.returncode}: {done.stdout[-1500:]}")
        return done.stdout, seconds

    def attempt(self, name, work):
        if self.left() < 15:
            print(f"== {name}: NOT RUN, the time is over", flush=True)
            return
        print(f"== {name} (at {time.monotonic() - self.begin:.0f} s)", flush=True)
        try:
            self.results[name] = work()
        except (RuntimeError, OSError, subprocess.TimeoutExpired, ValueError) as error:
            self.results[name] = {"error": str(error)[-1500:]}
        finally:
            self.stop()
        print(compact(self.results[name]), flush=True)
        if self.options.out:
            with open(f"{self.options.out}/results.json", "w", encoding="utf-8") as file:
                json.dump(self.results, file, indent=1)

    # --- Corpora ---

    def photographs(self):
        """A source with each large photograph often, and the folder of these."""
        images = f"{self.bundle}/shared/corpus/images"
        if not os.path.isdir(images):
            raise RuntimeError(f"no {images}: build with BALLAST_SHARED_DIR set")
        chosen = f"{self.corpora}/photographs"
        os.makedirs(chosen, exist_ok=True)
        names = []
        for name in sorted(os.listdir(images)):
            frame = frame_of(f"{images}/{name}")
            if frame and frame[0] == BASELINE and frame[1] * frame[2] >= LEAST_PIXELS:
                shutil.copyfile(f"{images}/{name}", f"{chosen}/{name}")
                names.append(name)
        lines = f"{self.corpora}/photographs.jsonl"
        with open(lines, "w", encoding="utf-8") as file:
            for number in range(REPEATS * len(names)):
                turns = [{"from": "human", "value": "<image>\nDescribe."},
                         {"from": "gpt", "value": f"Photograph {number}."}]  # fmt: skip
                file.write(json.dumps({"id": f"{number:06}", "conversations": turns,
                                       "image": names[number % len(names)]}) + "\n")  # fmt: skip
        return (f'{{name: photographs, format: jsonl, path: "{lines}", '
                f'media_root: "{chosen}"}}', chosen)  # fmt: skip

    def receipts(self):
        """A source of drawn receipts, and a folder with their images."""
        folder = f"{self.corpora}/receipts"
        self.run(self.program("bin", "ballast-server"), "make-corpus", "--out", folder,
                 "--samples", self.options.receipts, "--preset", "receipts")  # fmt: skip
        images = f"{self.folder}/receipt-images"
        os.makedirs(images, exist_ok=True)
        for name in sorted(os.listdir(folder)):
            if name.endswith(".tar"):
                self.run("tar", "-C", images, "-xf", f"{folder}/{name}")
        for name in os.listdir(images):
            if not name.endswith((".jpg", ".jpeg")):
                os.unlink(f"{images}/{name}")
        return f'{{name: receipts, format: webdataset, path: "{folder}/*.tar"}}', images

    def config(self, name, source, decode, batch, share=1.0):
        path = f"{self.folder}/{name}-{decode}-{batch}-{share}.yaml"
        if share != 1:
            decode = f"{decode}, device_share: {share}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(source=source, decode=decode, batch=batch,
                                     memory=self.memory_mib, arena=self.arena))  # fmt: skip
        return path

    # --- Servers ---

    def serve(self, config):
        """Starts a server; returns its address and process id."""
        address = f"unix:{config[:-5]}.sock"
        with open(f"{config[:-5]}.log", "w", encoding="utf-8") as log:
            server = subprocess.Popen(  # pylint: disable=consider-using-with
                [self.program("bin", "ballast-server"), "serve", "--config", config,
                 "--listen", address], stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        self.servers.append(server)
        if not server.stdout.readline().startswith("ready"):
            with open(f"{config[:-5]}.log", encoding="utf-8") as log:
                raise RuntimeError(log.read()[-1500:])
        return f"{address},{server.pid}"

    def stop(self):
        for server in self.servers:
            server.kill()
            server.wait()
            server.stdout.close()
        self.servers = []

    # --- Measurements ---

    def whole_way(self, name, corpus, beside, with_shares):
        source, images = corpus()
        device = self.config(name, source, "device", 32)
        server = self.program("bin", "ballast-server")
        indexed, index_s = self.run(server, "index", "--config", device)
        checked, check_s = self.run(server, "index", "--config", device, "--check",
                                    name=f"{name}-check")  # fmt: skip
        print(indexed[-600:], checked[-600:], sep="\n", flush=True)
        servers = {
            "device": self.serve(device),
            "host": self.serve(self.config(name, source, "host", 32)),
            "device8": self.serve(self.config(name, source, "device", 8)),
        }
        for share in self.shares() if with_shares else []:
            config = self.config(name, source, "device", 32, share)
            servers[f"device_share{share}"] = self.serve(config)
        result = {"index_s": index_s, "check_s": check_s, "cores": os.cpu_count()}
        if self.options.without_gpu:
            for each, where in servers.items():
                result[each] = self.pull(where.split(",")[0])
            return result
        command = [self.program("benchmarks", "whole_way_gpu_benchmark"), "--images",
                   images, "--rounds", self.options.rounds,
                   "--latency", f"device8={servers['device8']}"]  # fmt: skip
        for each, where in servers.items():
            command += ["--server", f"{each}={where}"]
        for way in filter(None, self.options.ways.split(",")):
            command += ["--way", way]
        if beside:
            command += ["--beside", f"device={servers['device']}"]
        text, _ = self.run(*command, name=f"{name}-whole-way", limit=170)
        for where in servers.values():
            # What a server or a rank warned of, such as a lack of shared memory.
            with open(f"{where.split(',')[0][5:-5]}.log", encoding="utf-8") as log:
                print(log.read()[-400:], flush=True)
        print("\n".join(line for line in text.splitlines()
                        if line[:2] in ("W ", "E ", "I "))[-1500:])  # fmt: skip
        result.update(json.loads(text.splitlines()[-1]))
        large = " of large pages" if self.corpora in self.mounted else ""
        result["file_system"] = file_system(self.corpora) + large
        alone = result["engines_alone"]["images_s"]
        for each in servers:
            result[each]["of_engines_alone"] = round(result[each]["images_s"] / alone, 3)
        return result

    def pull(self, address):
        """Pulls a few blocks without a GPU."""
        text, _ = self.run(self.program("bin", "ballastctl"), "--server", address, "pull",
                           "--module", "vision", "--dp-rank", "0", "--step", "0",
                           "--steps", "3", "--json")  # fmt: skip
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def sweep(self, *arguments):
        text, _ = self.run(self.program("benchmarks", "engine_sweep_gpu_benchmark"),
                           *arguments, name="sweep" + "".join(arguments), limit=240)  # fmt: skip
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def tests(self):
        results = {}
        for name in ("plane_kernels_gpu_test", "decode_stage_gpu_test",
                     "encoded_images_gpu_test", "device_image_decoder_gpu_test",
                     "device_jpeg_engine_gpu_test"):  # fmt: skip
            path = self.program("tests", name)
            if not os.path.exists(path):
                results[name] = "not in the bundle"
                continue
            try:
                text, seconds = self.run(path, name=name, limit=100)
                results[name] = f"passed in {seconds:.0f} s: {text.splitlines()[-1]}"
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                results[name] = f"FAILED: {str(error)[-1500:]}"
        return results

    def dali(self):
        results = {}
        script = f"{self.bundle}/node/dali_baseline.py"
        for batch in (8, 32, 64):
            text, _ = self.run(sys.executable, script, f"{self.corpora}/photographs",
                               "--batch", batch, "--seconds", 4)  # fmt: skip
            results[batch] = json.loads(text.splitlines()[-1])
            if "absent" in results[batch]:
                return results[batch]
        return results


def main():
    options = parse()
    if options.out:
        os.makedirs(options.out, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ballast", dir="/tmp") as folder:
        engines = Engines(options, folder)
        wanted = options.only.split(",")
        steps = {
            "photographs": lambda: engines.whole_way(
                "photographs", engines.photographs, beside=True, with_shares=True),
            "dali": engines.dali,
            "receipts": lambda: engines.whole_way(
                "receipts", engines.receipts, beside=False,
                with_shares=options.without_gpu),
            "sweep": engines.sweep,
            "sweep-blocking": lambda: engines.sweep("--blocking"),
            "sweep-no-pipeline": lambda: engines.sweep("--no-pipeline"),
            "sweep-on-device": lambda: engines.sweep("--on-device"),
            "tests": engines.tests,
        }  # fmt: skip
        try:
            for name, work in steps.items():
                if name in wanted:
                    engines.attempt(name, work)
        finally:
            engines.close()
    failed = [
        name
        for name, result in engines.results.items()
        if isinstance(result, dict) and "error" in result
    ]
    print(f"{len(engines.results) - len(failed)} measured, {len(failed)} failed: "
          f"{' '.join(failed)}")  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
