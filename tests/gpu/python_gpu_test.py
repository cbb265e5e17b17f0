"""The Python package on GPUs: run by python_gpu_test.sh."""

import contextlib
import os
import subprocess
import tempfile
import threading
import unittest

import torch
import torch.distributed as dist

import ballast

GPUS = torch.cuda.device_count()
STEPS = 3
MODULES = ("vision", "language")
CONFIG = """
sources: [{name: receipts, format: webdataset, path: "%s/*.tar"}]
model: {profile: qwen2_5_vl, tokenizer: bytes, max_pixels: 401408}
batch: {global: %d, micro: %d, max_tokens: 16384}
topology: {modules: {vision: {dp: %d}, language: {dp: %d}}}
balance: {delivery: %s}
serve: {memory: 256MiB}
"""


@contextlib.contextmanager
def server(folder, delivery):
    """A server of a job with a rank of each module on each GPU; its address."""
    program = os.environ["BALLAST_SERVER_PROGRAM"]
    config = os.path.join(folder, delivery + ".yaml")
    with open(config, "w", encoding="utf-8") as file:
        file.write(CONFIG % (folder, 8 * GPUS, 4 * GPUS, GPUS, GPUS, delivery))
    subprocess.run([program, "index", "--config", config], check=True, stdout=subprocess.DEVNULL)
    address = "unix:%s/%s.sock" % (folder, delivery)
    process = subprocess.Popen(
        [program, "serve", "--config", config, "--listen", address],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout.readline().startswith(b"ready")
        yield address
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def loader(address, rank, device, **options):
    return ballast.Loader(
        address, dp_rank=rank, device=device, pixel_type="float32", steps=STEPS, **options
    )


def digests(batches):
    stream = torch.cuda.current_stream().cuda_stream
    return [(batch.step, batch.micro_batch, batch.digest(stream)) for batch in batches]


def exchange(rank, addresses, folder):
    """One process for each GPU, as in trainers."""
    torch.cuda.set_device(rank)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    dist.init_process_group(
        "nccl", rank=rank, world_size=GPUS, device_id=torch.device("cuda", rank)
    )
    found = {}
    with loader(addresses["exchange"], rank, "cuda") as met:
        found["met"] = digests(met)
    dist.barrier()
    ends = {module: ballast.Communicator.from_process_group() for module in MODULES}
    with loader(addresses["exchange"], rank, "cuda", communicator=ends, overlap=False) as given:
        found["given"] = digests(given)
    dist.barrier()
    own = dist.group.WORLD._get_backend(torch.device("cuda"))._comm_ptr()
    ends = {m: ballast.Communicator.borrow(own, rank, GPUS, device=rank) for m in MODULES}
    with loader(addresses["exchange"], rank, "cuda", communicator=ends) as borrowed:
        found["borrowed"] = digests(borrowed)
    # The trainer's own communicator is unchanged.
    total = torch.ones(1, device="cuda")
    dist.all_reduce(total)
    assert total.item() == GPUS
    torch.save(found, os.path.join(folder, "rank%d.pt" % rank))
    dist.destroy_process_group()


class PythonGpuTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="ballast"))
        subprocess.run(
            [os.environ["BALLAST_SERVER_PROGRAM"], "make-corpus", "--out", cls.folder,
             "--samples", "64", "--preset", "receipts", "--seed", "5"],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        cls.addresses = {
            delivery: cls.enterClassContext(server(cls.folder, delivery))
            for delivery in ("direct", "exchange")
        }

    def test_batches_equal_the_hosts(self):
        for rank in range(GPUS):
            with loader(self.addresses["direct"], rank, "cpu") as there:
                wanted = digests(there)
            self.assertEqual(len(wanted), 2 * STEPS)
            torch.cuda.set_device(rank)
            for overlap in (True, False):
                with loader(self.addresses["direct"], rank, "cuda", overlap=overlap) as here:
                    self.assertEqual(digests(here), wanted)
        torch.cuda.set_device(0)

    def test_tensors_are_not_copied_and_clones_stay(self):
        with loader(self.addresses["direct"], 0, "cpu", array="torch") as there:
            wanted = [batch.clone() for batch in there]
        torch.cuda.set_device(0)
        kept = []
        with loader(self.addresses["direct"], 0, "cuda") as here:
            for batch in here:
                raw = {t.name.decode(): t for part in batch._parts for t in part.tensors()}
                self.assertEqual(set(raw), {k for k in batch if not k.endswith("max_seqlen")})
                for name, tensor in raw.items():
                    self.assertEqual(batch[name].data_ptr(), tensor.data or 0)
                    self.assertEqual(batch[name].is_cuda, not name.endswith("_host"))
                    if batch[name].is_cuda:
                        self.assertEqual((tensor.data or 0) % 256, 0)
                kept.append(batch.clone())
        self.assertEqual(len(kept), len(wanted))
        for mine, theirs in zip(kept, wanted):
            self.assertEqual([s.name for s in mine.samples], [s.name for s in theirs.samples])
            for key, value in theirs.items():
                if torch.is_tensor(value):
                    self.assertEqual(mine[key].dtype, value.dtype)
                    self.assertTrue(torch.equal(mine[key].cpu(), value), key)
                else:
                    self.assertEqual(mine[key], value)

    def test_bfloat16_is_the_default(self):
        torch.cuda.set_device(0)
        with loader(self.addresses["direct"], 0, "cuda") as wide:
            wanted = next(wide)["pixel_values"].to(torch.bfloat16)
        with ballast.Loader(self.addresses["direct"], "vision", steps=1) as here:
            self.assertTrue(torch.equal(next(here)["pixel_values"], wanted))

    def test_on_the_callers_own_stream(self):
        torch.cuda.set_device(0)
        stream = torch.cuda.Stream()
        sums = []
        with torch.cuda.stream(stream), loader(self.addresses["direct"], 0, "cuda") as here:
            for batch in here:
                sums.append(batch["input_ids"].sum())
        with loader(self.addresses["direct"], 0, "cpu", array="torch") as there:
            wanted = [int(batch["input_ids"].sum()) for batch in there]
        self.assertEqual([int(x) for x in sums], wanted)

    def test_graphs_are_captured_while_batches_come(self):
        """In torch's default mode, in which any thread's unsafe call ends a capture."""
        torch.cuda.set_device(0)
        with loader(self.addresses["direct"], 0, "cpu") as there:
            wanted = digests(there)
        ended, found, mine = threading.Event(), [], []

        stream = torch.cuda.Stream()

        def come():
            with torch.cuda.stream(stream):
                while not ended.is_set():
                    with loader(self.addresses["direct"], 0, "cuda") as here:
                        found.append(digests(here))

        weights = torch.ones(64, 64, device="cuda")
        weights @ weights  # cuBLAS makes its handle, which no capture may
        other = threading.Thread(target=come)
        other.start()
        try:
            with loader(self.addresses["direct"], 0, "cuda") as here:
                for capture in range(300):
                    batch = next(here) if capture < len(wanted) else None
                    mine += digests([batch] if batch else [])
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, capture_error_mode="global"):
                        product = weights @ weights
                        batch = None  # released within the capture
                    graph.replay()
                    self.assertEqual(float(product[0, 0]), 64)
        finally:
            ended.set()
            other.join()
        self.assertEqual(mine, wanted)
        self.assertGreater(len(found), 0)
        self.assertEqual([each for each in found if each != wanted], [])

    def test_a_graphed_module_trains_on_batches(self):
        torch.cuda.set_device(0)
        plain = torch.nn.Embedding(256, 16, device="cuda")
        tokens = 1024

        def ids(batch):
            found = batch["input_ids"].flatten()[:tokens] % 256
            return torch.nn.functional.pad(found, (0, tokens - found.numel()))

        def sums(module, batches):
            return [float(module(ids(batch)).sum()) for batch in batches]

        with loader(self.addresses["direct"], 0, "cuda") as here:
            wanted = sums(plain, here)
        with loader(self.addresses["direct"], 0, "cuda") as here:
            first = next(here)
            graphed = torch.cuda.make_graphed_callables(plain, (ids(first),))
            found = sums(graphed, [first])
            del first
            found += sums(graphed, here)
        self.assertEqual(found, wanted)

    def test_holders_beyond_the_bound_are_named(self):
        torch.cuda.set_device(0)
        with loader(self.addresses["direct"], 0, "cuda", max_batches_held=1) as here:
            held = next(here)["labels"]
            with self.assertRaisesRegex(ballast.ResourceExhausted, "labels"):
                next(here)
            del held
            next(here)

    def test_numpy_is_refused(self):
        with self.assertRaisesRegex(ballast.InvalidArgument, "numpy"):
            loader(self.addresses["direct"], 0, "cuda", array="numpy")

    def test_processes_exchange(self):
        if GPUS < 2:
            print("one GPU: ranks that exchange between processes need two")
            return
        wanted = []
        for rank in range(GPUS):
            with loader(self.addresses["direct"], rank, "cpu") as there:
                wanted.append(digests(there))
        torch.multiprocessing.spawn(exchange, (self.addresses, self.folder), GPUS)
        for rank in range(GPUS):
            found = torch.load(os.path.join(self.folder, "rank%d.pt" % rank))
            for way in ("met", "given", "borrowed"):
                self.assertEqual(found[way], wanted[rank], (rank, way))


if __name__ == "__main__":
    unittest.main(verbosity=2)
