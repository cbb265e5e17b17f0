"""Gradients with split placement are those of paired placement: four processes over
Gloo train a small model in float64. Needs a Python with torch:
bazel test --test_env=BALLAST_PYTHON=/path/to/python ..."""

import datetime
import os
import sys
import unittest

import ballast
from tests.integration.command_line import tools

try:
    import torch
except ImportError:
    print("SKIPPED: %s lacks torch; BALLAST_PYTHON names another Python" % sys.executable)
    torch = None

RANKS, STEPS, WIDTH, VOCABULARY = 4, 2, 8, 97
CONFIG = """
sources:
  - name: mock
    format: mock
    lengths: {mode: lognormal, min: 64, max: 512, mean: 160, sigma: 0.6, count: 400}
    images: {min: 0, max: %d, pixels: {min: 4000, max: 60000, mean: 20000, sigma: 0.8}}
model: {profile: qwen2_5_vl, tokenizer: bytes}
batch: {global: %d, micro: %d, max_tokens: 1024}
topology: {modules: {vision: {dp: 4}, language: {dp: 4}}}
balance:
  placement: %s
  delivery: %s
  cost: {vision: {linear: 1}, language: {linear: 3, quadratic: 0.01}}
serve: {listen: ["127.0.0.1:0"]}
"""
# Most images of a sample, samples of a step and of a micro-batch. In the second job
# micro-batches have fewer images than ranks.
JOBS = {"many": (3, 32, 16), "few": (1, 16, 4)}


class EmbeddingsTest(tools.ToolTest):
    def setUp(self):
        if torch is None:
            self.skipTest("no torch")

    def gradients(self, job, placement, delivery="direct"):
        """The summed gradients of a run, and what its ranks have seen."""
        name = "%s-%s-%s" % (job, placement, delivery)
        config = self.write(name + ".yaml", CONFIG % (*JOBS[job], placement, delivery))
        folder = self.path(name)
        os.mkdir(folder)
        with self.server(config, "unix:%s/a.sock" % folder) as (address,):
            torch.multiprocessing.spawn(run_rank, (address, folder, delivery), RANKS)
        return torch.load(os.path.join(folder, "result.pt"))

    def assert_equal_gradients(self, found, wanted):
        self.assertEqual(found["gradients"].keys(), wanted["gradients"].keys())
        for name, gradient in wanted["gradients"].items():
            largest = gradient.abs().max().item()
            self.assertGreater(largest, 0, name)
            difference = (found["gradients"][name] - gradient).abs().max().item()
            self.assertLessEqual(difference, 1e-12 * largest, name)

    def test_many_images(self):
        paired = self.gradients("many", "paired")
        self.assertEqual(paired["moved"], 0)
        for delivery in ("direct", "exchange"):
            split = self.gradients("many", "split", delivery)
            self.assert_equal_gradients(split, paired)
            self.assertGreater(split["moved"], 0)
            self.assertEqual({0, 1, 2, 3}, split["images"])

    def test_ranks_without_images(self):
        paired = self.gradients("few", "paired")
        split = self.gradients("few", "split")
        self.assertGreater(split["dummies"], 0)
        self.assertGreater(split["empty"], 0)
        self.assert_equal_gradients(split, paired)

    def test_refuses_other_numbers_of_rows(self):
        class Batch(dict):
            dummy_image = True

        plan = {"embedding_send_host": torch.tensor([2, 1])}
        with self.assertRaisesRegex(
            ballast.InvalidArgument, "found 3 rows; wanted 4, .* and the dummy image's"
        ):
            ballast.exchange_embeddings(torch.zeros(3, WIDTH), Batch(plan))
        with self.assertRaisesRegex(ballast.InvalidArgument, "found 4 rows; wanted 3"):
            ballast.exchange_embeddings(torch.zeros(4, WIDTH), plan)

    def test_paired_batches_need_no_group(self):
        class Batch(dict):
            dummy_image = True

        rows = torch.arange(6.0).reshape(3, 2).requires_grad_()
        found = ballast.exchange_embeddings(rows, Batch())
        self.assertTrue(torch.equal(found, rows[:2]))
        found.sum().backward()
        self.assertEqual(rows.grad.tolist(), [[1, 1], [1, 1], [0, 0]])
        self.assertIs(ballast.exchange_embeddings(rows, {}), rows)

    def test_the_look_up_runs_while_rows_travel(self):
        folder = self.path("overlap")
        os.mkdir(folder)
        torch.multiprocessing.spawn(run_overlap, (folder,), 2)

    def test_adapters_refuse_a_split_batch(self):
        batch = {"embedding_send_host": torch.tensor([1]), "pixel_values": torch.zeros(4, 6),
                 "image_grid_thw": torch.tensor([[1, 2, 2]])}  # fmt: skip
        with self.assertRaisesRegex(ballast.FailedPrecondition, "placement `split`"):
            ballast.adapters.megatron_bridge.forward_inputs(batch)
        with self.assertRaisesRegex(ballast.FailedPrecondition, "exchange_embeddings"):
            ballast.adapters.huggingface._without_dummy(batch)


if torch is not None:

    class Attention(torch.nn.Module):
        """Attention of one head within each segment."""

        def __init__(self):
            super().__init__()
            self.mix = torch.nn.Linear(WIDTH, 3 * WIDTH)

        def forward(self, hidden, bounds, causal):
            parts = []
            for begin, end in zip(bounds[:-1], bounds[1:]):
                q, k, v = self.mix(hidden[begin:end]).chunk(3, -1)
                weights = q @ k.T / WIDTH**0.5
                if causal:
                    future = torch.ones_like(weights).triu(1).bool()
                    weights = weights.masked_fill(future, float("-inf"))
                parts.append(hidden[begin:end] + weights.softmax(-1) @ v)
            return torch.cat(parts) if parts else hidden

    class Model(torch.nn.Module):
        def __init__(self, values):
            super().__init__()
            self.patches = torch.nn.Linear(values, WIDTH)
            self.tower = Attention()
            self.merger = torch.nn.Linear(4 * WIDTH, WIDTH)
            self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
            self.layers = Attention()
            self.head = torch.nn.Linear(WIDTH, VOCABULARY)

        def embeddings(self, batch):
            hidden = self.patches(batch["pixel_values"].double())
            bounds = batch["vision_cu_seqlens"].tolist()
            hidden = torch.tanh(self.tower(hidden, bounds, causal=False))
            return self.merger(hidden.reshape(-1, 4 * WIDTH))

        def forward(self, batch, exchange, image_token):
            """The summed loss of the rank's tokens. `exchange`: of rows and the batch."""
            rows = exchange(self.embeddings(batch), batch)
            ids = batch["input_ids"][0]
            hidden = self.tokens(ids % VOCABULARY)
            hidden = hidden.masked_scatter((ids == image_token)[:, None], rows)
            # No token of padding: packing.align is 1.
            hidden = self.layers(hidden, batch["cu_seqlens"].tolist(), causal=True)
            labels = batch["labels"][0]
            wanted = torch.where(labels < 0, labels, labels % VOCABULARY)
            return torch.nn.functional.cross_entropy(
                self.head(hidden), wanted, ignore_index=-100, reduction="sum"
            )


def own_rows(embeddings, batch):
    """Paired placement without Ballast's function: the tower's rows but the dummy's."""
    rows = int((batch["image_grid_thw"].prod(1) // 4).sum()) - bool(batch.dummy_image)
    return embeddings[:rows] + embeddings[rows:].sum() * 0


def run_overlap(rank, folder):
    """Two ranks swap their rows. Rank 1 begins its exchange only once rank 0 has begun and
    looked its text up: an exchange that waited for its peer to begin would never get there."""
    import torch.distributed as dist

    store = dist.FileStore(folder + "/store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2,
                            timeout=datetime.timedelta(seconds=60))  # fmt: skip
    plan = [0, 3] if rank == 0 else [3, 0]
    batch = {"embedding_send_host": torch.tensor(plan),
             "embedding_receive_host": torch.tensor(plan),
             "embedding_order": torch.tensor([2, 0, 1])}  # fmt: skip
    rows = (torch.arange(6.0).reshape(3, 2) + 10 * rank).requires_grad_()
    words = torch.nn.Embedding(5, 2)
    if rank == 1:
        store.wait(["looked up"])
    exchange = ballast.EmbeddingExchange(rows, batch)
    hidden = words(torch.tensor([0, 1, 2]))
    if rank == 0:
        store.set("looked up", "yes")
    got = exchange.wait()
    wanted = (torch.arange(6.0).reshape(3, 2) + 10 * (1 - rank))[[2, 0, 1]]
    assert torch.equal(got, wanted), got
    (got * torch.tensor([[1.0], [2.0], [3.0]]) + hidden).sum().backward()
    assert rows.grad[:, 0].tolist() == [2, 3, 1], rows.grad
    dist.destroy_process_group()


def run_rank(rank, address, folder, delivery):
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = "file://%s/store" % folder
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    seen = {"images": set(), "dummies": 0, "empty": 0, "moved": 0}
    with ballast.Loader(
        address, dp_rank=rank, device="cpu", array="torch", steps=STEPS,
        exchange=delivery == "exchange",
    ) as loader:  # fmt: skip
        token = int(loader.job["model"]["token_ids"]["image"])
        split = loader.job["placement"] == "split"
        model = None
        for batch in loader:
            if model is None:
                model = Model(batch["pixel_values"].shape[1]).double()
            exchange = ballast.exchange_embeddings if split else own_rows
            loss = model(batch, exchange, token) / batch.step_totals.label_tokens
            loss.backward()
            seen["dummies"] += batch.dummy_image
            seen["images"].update(batch.images_per_sample)
            if split:
                plan = batch["embedding_send_host"].tolist()
                seen["moved"] += sum(plan) - plan[rank]
                seen["empty"] += not batch["embedding_order"].numel()
    gradients = {}
    for name, parameter in model.named_parameters():
        dist.all_reduce(parameter.grad)
        gradients[name] = parameter.grad
    everywhere = [None] * RANKS
    dist.all_gather_object(everywhere, seen)
    if rank == 0:
        result = {key: sum(of[key] for of in everywhere) for key in ("dummies", "empty", "moved")}
        result["images"] = set().union(*(of["images"] for of in everywhere))
        result["gradients"] = gradients
        torch.save(result, os.path.join(folder, "result.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    unittest.main()
