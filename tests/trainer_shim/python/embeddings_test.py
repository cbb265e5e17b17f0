"""Gradients with split placement are those of paired placement: four processes over
Gloo train a small model in float64."""

import datetime
import os
import unittest

import torch

import ballast
from tests.trainer_shim.python import split_job

WIDTH, VOCABULARY = 8, 97


class EmbeddingsTest(split_job.SplitJobTest):
    def test_many_images(self):
        paired = self.gradients(run_small, "qwen2_5_vl", "most", "paired")
        for delivery in ("direct", "exchange"):
            seen = self.assert_split_equals_paired(
                run_small, "qwen2_5_vl", "most", delivery, paired
            )
            self.assertEqual({0, 1, 2, 3}, seen["images"])

    def test_ranks_without_images(self):
        seen = self.assert_split_equals_paired(run_small, "qwen2_5_vl", "fewest")
        self.assertGreater(seen["dummies"], 0)
        self.assertGreater(seen["empty"], 0)

    def test_refuses_other_numbers_of_rows(self):
        class Batch(dict):
            dummy_image = True

        plan = {"embedding_send_host": torch.tensor([2, 1]),
                "embedding_receive_host": torch.tensor([2, 1])}  # fmt: skip
        with self.assertRaisesRegex(
            ballast.InvalidArgument, "found 3 rows; wanted 4, .* and the dummy image's"
        ):
            ballast.exchange_embeddings(torch.zeros(3, WIDTH), Batch(plan))
        with self.assertRaisesRegex(ballast.InvalidArgument, "found 4 rows; wanted 3"):
            ballast.exchange_embeddings(torch.zeros(4, WIDTH), plan)

    def test_images_are_sent_before_videos_and_arrive_as_the_text_has_them(self):
        from ballast import embeddings

        image, video, word = 7, 8, 1
        first = [word, video, video, word, image, image, image, word, video, word]
        second = [image, word, video, video]
        order = torch.tensor([4, 5, 6, 0, 1, 2, 8, 7, 3])  # of three images, three videos, …
        wanted = [0, 1, 4, 5, 6, 2, 8, 7, 3]
        packed = {"input_ids": torch.tensor([[*first, *second, 0, 0]]), "embedding_order": order,
                  "cu_seqlens_padded": torch.tensor([0, 10, 16], dtype=torch.int32)}  # fmt: skip
        padded = {"input_ids": torch.tensor([first, second + [0] * 6]), "embedding_order": order}
        for batch in (packed, padded):
            found = embeddings.order_of(batch, "vision", torch.zeros(1), (image, video))
            self.assertEqual(found.tolist(), wanted)
            plain = embeddings.order_of(batch, "vision", torch.zeros(1))
            self.assertEqual(plain.tolist(), order.tolist())

    def test_paired_batches_need_no_group(self):
        class Batch(dict):
            dummy_image = True

        rows = torch.arange(6.0).reshape(3, 2).requires_grad_()
        found = ballast.exchange_embeddings(rows, Batch())
        self.assertTrue(torch.equal(found, rows[:2]))
        found.sum().backward()
        self.assertEqual(rows.grad.tolist(), [[1, 1], [1, 1], [0, 0]])
        self.assertIs(ballast.exchange_embeddings(rows, {}), rows)

    def test_refuses_other_numbers_of_rows_of_shared_packs(self):
        # Three rows, of which two go to both ranks of a pack.
        order = torch.tensor([0, 1, 0, 1, 2])
        plan = {"embedding_send_host": torch.tensor([2, 3]), "embedding_send_order": order,
                "embedding_send_order_host": order,
                "embedding_receive_host": torch.tensor([2, 1])}  # fmt: skip
        with self.assertRaisesRegex(ballast.InvalidArgument, "found 5 rows; wanted 3"):
            ballast.exchange_embeddings(torch.zeros(5, WIDTH), plan)

    def test_images_of_shared_packs(self):
        image, places = 9, [0, 8, 24]
        ids = torch.tensor([1, 9, 9, 9, 2, 3, 4, 0] + [9, 9, 5, 9, 6, 9] + [0] * 10)
        rows = torch.arange(14.0).reshape(7, 2)
        of_token = iter(rows)
        whole = torch.stack([next(of_token) if t == image else -torch.ones(2) for t in ids])
        for ranks in (1, 2, 4):
            given = rows.clone().requires_grad_()
            texts = torch.zeros(len(ids))  # gradients of the texts' own embeddings
            for rank in range(ranks):
                batch = {
                    "pack_input_ids": ids[None], "pack_share_host": torch.tensor([ranks, rank]),
                    "cu_seqlens_padded": torch.tensor(places),
                }  # fmt: skip
                images = ballast.adapters.megatron_core.ContextImages(batch, given, image)
                passes = [range(24)]
                if ranks > 1:
                    passes = [part(*of, ranks, rank) for of in zip(places, places[1:])]
                for number, tokens in enumerate(passes):
                    tokens = list(tokens)
                    images.begin(number)
                    hidden = -torch.ones(len(tokens), 1, 2)
                    hidden.requires_grad_()
                    found = images.put(hidden)
                    self.assertTrue(torch.equal(found[:, 0], whole[tokens]))
                    (found[:, 0, 0] * (1 + torch.tensor(tokens))).sum().backward()
                    texts[tokens] += hidden.grad[:, 0, 0]
                images.backward()
            # Every token's weight arrives once, whichever rank has the token.
            weights = 1.0 + torch.arange(len(ids))
            self.assertTrue(torch.equal(given.grad[:, 0], weights[ids == image]))
            self.assertTrue(torch.equal(texts, weights * (ids != image)))

    def test_deepstack_features_of_shared_packs(self):
        image, ranks, places = 9, 2, [0, 8, 12]
        ids = torch.tensor([1, 9, 9, 9, 2, 3, 4, 0] + [1, 2, 3, 0])
        given = torch.arange(3 * 3 * 2.0).reshape(3, 3, 2).requires_grad_()
        seen = {}  # of each token, what each layer adds
        for rank in range(ranks):
            batch = {
                "pack_input_ids": ids[None], "pack_share_host": torch.tensor([ranks, rank]),
                "cu_seqlens_padded": torch.tensor(places),
            }  # fmt: skip
            images = ballast.adapters.megatron_core.ContextImages(batch, given, image)
            for number, (begin, end) in enumerate(zip(places, places[1:])):
                tokens = torch.tensor(list(part(begin, end, ranks, rank)))
                images.begin(number)
                found = images.put(torch.zeros(len(tokens), 1, 2))
                is_image, features = images.deepstack()
                self.assertEqual(is_image.tolist(), (ids[tokens] == image)[None].tolist())
                self.assertEqual(len(features), 2)
                loss = torch.zeros(())
                for layer, rows in enumerate([found[is_image[0], 0], *features]):
                    for token, row in zip(tokens[is_image[0]].tolist(), rows):
                        seen[token, layer] = row.tolist()
                    loss = loss + rows[:, 0].sum() * (1 + layer)
                loss.backward()
            images.backward()
        self.assertEqual(
            seen, {(1 + i, j): given[i, j].tolist() for i in range(3) for j in range(3)}
        )
        self.assertEqual(given.grad[..., 0].tolist(), [[1, 2, 3]] * 3)
        self.assertEqual(given.grad[..., 1].tolist(), [[0, 0, 0]] * 3)

    def test_no_pass_goes_without_deepstack_features(self):
        batch = {"pack_input_ids": torch.tensor([[9, 1, 2, 3]]),
                 "pack_share_host": torch.tensor([1, 0])}  # fmt: skip
        images = ballast.adapters.megatron_core.ContextImages(batch, torch.ones(1, 3, 2), 9)
        images.put(torch.zeros(4, 1, 2))
        for end in (images.backward, lambda: images.begin(0)):
            with self.assertRaisesRegex(ballast.FailedPrecondition, "without the 2 deepstack"):
                end()
        images.deepstack()
        images.backward()

    def test_what_images_of_shared_packs_refuse(self):
        images = ballast.adapters.megatron_core.ContextImages
        batch = {"pack_input_ids": torch.tensor([[9, 1, 2, 9]]),
                 "pack_share_host": torch.tensor([1, 0])}  # fmt: skip
        with self.assertRaisesRegex(ballast.InvalidArgument, "found 3; wanted 2"):
            images(batch, torch.zeros(3, WIDTH), 9)
        with self.assertRaisesRegex(ballast.InvalidArgument, r"found \[2\]; wanted \[placeholders"):
            images(batch, torch.zeros(2), 9)
        with self.assertRaisesRegex(ballast.FailedPrecondition, "without pack_input_ids"):
            images({"pack_share_host": torch.tensor([1, 0])}, torch.zeros(2, WIDTH), 9)
        with self.assertRaisesRegex(ballast.InvalidArgument, r"found \[2, 1, 8\]; wanted \[4, "):
            images(batch, torch.zeros(2, WIDTH), 9).put(torch.zeros(2, 1, WIDTH))

    def test_the_look_up_runs_while_rows_travel(self):
        folder = self.path("overlap")
        os.mkdir(folder)
        split_job.start(run_overlap, (folder,), 2)

    def test_adapters_refuse_a_split_batch(self):
        batch = {"embedding_send_host": torch.tensor([1]), "pixel_values": torch.zeros(4, 6),
                 "image_grid_thw": torch.tensor([[1, 2, 2]])}  # fmt: skip
        with self.assertRaisesRegex(ballast.FailedPrecondition, "placement `split`"):
            ballast.adapters.megatron_bridge.forward_inputs(batch)
        with self.assertRaisesRegex(ballast.FailedPrecondition, "exchange_embeddings"):
            ballast.adapters.huggingface._images(batch)


def part(begin, end, ranks, rank):
    """The tokens of a sample that a context rank has, by their places."""
    piece = (end - begin) // (2 * ranks)
    for number in (rank, 2 * ranks - 1 - rank):
        yield from range(begin + number * piece, begin + (number + 1) * piece)


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


def run_small(rank, loader, split, seen):
    torch.manual_seed(0)
    token = int(loader.job["model"]["token_ids"]["image"])
    model = None
    for batch in loader:
        if model is None:
            model = Model(batch["pixel_values"].shape[1]).double()
        exchange = ballast.exchange_embeddings if split else own_rows
        loss = model(batch, exchange, token) / batch.step_totals.label_tokens
        loss.backward()
        split_job.note(batch, rank, seen)
    return {name: weight.grad for name, weight in model.named_parameters()}


if __name__ == "__main__":
    unittest.main()
