#!/usr/bin/env python3
"""A model sharded by FSDP2 on data of which few samples have images, and CUDA graphs that each rank
captures while the ranks exchange.

    several_text.py --ballast-server ballast-server --world 2 --out text.json

A rank without images gets a dummy image: its tower must join the collectives of the others, or all
wait for it without end. Each way of delivery trains on the same steps with weights that stay as
they are, so its losses must equal those of `off` except for rounding. Between the batch of a step
and the step itself, while the next one is exchanged, the rank captures a graph in the mode `global`
and replays it; its result must be the eager one's. Without GPUs (`--device cpu`) none is captured.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist

_EXAMPLES = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "trainer_shim", "python", "examples"
)
sys.path.insert(0, _EXAMPLES)

WAYS = ("off", "direct", "exchange", "hybrid")
CONFIG = """
    sources:
      - {{name: text, format: mock, weight: 0.9, vocabulary: 255,
          lengths: {{mode: lognormal, min: 64, max: 1024, mean: 400, sigma: 0.8, count: 4096}}}}
      - {{name: images, format: mock, weight: 0.1, vocabulary: 255,
          images: {{min: 1, max: 2, pixels: {{min: 50000, max: 400000, mean: 150000, sigma: 0.8}}}},
          lengths: {{mode: lognormal, min: 64, max: 1024, mean: 400, sigma: 0.8, count: 4096}}}}
    model: {{profile: qwen2_5_vl, tokenizer: bytes,
            token_ids: {{image: 256, video: 257, vision_start: 258, vision_end: 259,
                        im_start: 260, im_end: 261, end_of_text: 262, pad: 262}}}}
    batch: {{global: {batch}, micro: {batch}, max_tokens: 16384}}
    topology: {{modules: {{vision: {{dp: {world}}}, language: {{dp: {world}}}}}}}
    balance: {{delivery: {way}}}
    serve: {{memory: 512MiB, prefetch_steps: 4}}
"""


class Graphs:
    """Graphs of a small network, one captured by each call."""

    def __init__(self, device):
        self.network = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8))).to(
            device
        )
        self.input = torch.randn(64, 256, device=device)
        with torch.no_grad():
            self.wanted = self.network(self.input)
        self.count = 0

    def capture(self):
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph, capture_error_mode="global"):
            found = self.network(self.input)
        graph.replay()
        torch.testing.assert_close(found, self.wanted)
        self.count += 1


def train(rank, arguments, addresses):
    import ballast
    import train_vlm
    import vlm

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(arguments.port))
    torch.set_num_threads(1)
    cuda = arguments.device == "cuda"
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=arguments.world)
    torch.manual_seed(1)
    model = vlm.Model(vlm.SMALL, 256).to(device, torch.bfloat16 if cuda else torch.float32)
    model = train_vlm.Trainer.sharded(model)
    result = {"world": arguments.world, "steps": arguments.steps, "torch": torch.__version__,
              "device": torch.cuda.get_device_name() if cuda else "cpu", "ways": {}}  # fmt: skip
    for way, address in addresses.items():
        graphs, losses, dummies = Graphs(device), [], 0
        with ballast.Loader(address, dp_rank=rank, device=str(device), array="torch",
                            pixel_type="bfloat16" if cuda else "float32", steps=arguments.steps) as loader:  # fmt: skip
            for batch in loader:
                if cuda:
                    graphs.capture()
                dummies += batch.dummy_image
                loss = model(vlm.prepare(batch, vlm.SMALL, device)) / batch.step_totals.label_tokens
                loss.backward()
                model.zero_grad(set_to_none=True)
                total = loss.detach().clone()
                dist.all_reduce(total)
                losses.append(float(total))
        rows = [None] * arguments.world
        dist.all_gather_object(rows, (dummies, graphs.count))
        found = {"loss": losses, "dummy_images": sum(row[0] for row in rows),
                 "graphs": sum(row[1] for row in rows)}  # fmt: skip
        result["ways"][way] = found
        wanted = result["ways"][WAYS[0]]["loss"]
        found["difference"] = max(abs(a - b) / b for a, b in zip(losses, wanted))
        if rank == 0:
            print(way, {key: value for key, value in found.items() if key != "loss"}, flush=True)
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump(result, file)
        assert len(losses) == arguments.steps and found["difference"] < (2e-2 if cuda else 1e-4), (
            found
        )
        assert found["dummy_images"], "no rank was without images: this shows nothing"
        assert found["graphs"] == cuda * arguments.world * arguments.steps
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--ballast-server", required=True)
    parser.add_argument("--out", required=True, help="JSON file")
    parser.add_argument("--world", type=int, default=2, help="number of processes, one per GPU")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--port", type=int, default=29512)
    arguments = parser.parse_args()
    import job as jobs

    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ballast"))
        job = jobs.Job(folder, os.path.abspath(arguments.ballast_server), 1)
        addresses = {}
        for way in WAYS:
            text = CONFIG.format(way=way, world=arguments.world, batch=8 * arguments.world)
            addresses[way] = stack.enter_context(job.serve(job.configure(way, text)))
        torch.multiprocessing.spawn(train, (arguments, addresses), arguments.world)
    print("PASSED")
    return 0


if __name__ == "__main__":
    sys.exit(main())
