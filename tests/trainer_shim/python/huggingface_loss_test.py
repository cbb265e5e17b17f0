"""The loss over all ranks' tokens, and dummy images, in Hugging Face's Qwen2.5-VL and Qwen3-VL."""

import unittest

import torch

import ballast
from ballast.adapters import huggingface
from tests.trainer_shim.python.huggingface_split_test import qwen2_5_vl, qwen3_vl

IDS = {"image": 256, "video": 257, "vision_start": 258, "vision_end": 259}
MODELS = {qwen2_5_vl: 1176, qwen3_vl: 1536}  # values of a patch


def batch_of(lengths, align=1, images=(), values=1176, dummy=False):
    """Samples of text alone, or with an image of two tokens where `images` says so."""
    torch.manual_seed(11)
    rows, places, real = [], [0], [0]
    for number, length in enumerate(lengths):
        ids = torch.randint(1, 250, (length,))
        if number in images:
            ids[1:5] = torch.tensor([258, 256, 256, 259])
        padding = -length % align
        labels = torch.cat([ids[1:], torch.tensor([-100])])
        labels[labels >= 256] = -100
        one = torch.arange(length)
        rows.append([torch.nn.functional.pad(each, (0, padding), value=fill)
                     for each, fill in ((ids, 0), (labels, -100), (one, 0))])  # fmt: skip
        places.append(places[-1] + length + padding)
        real.append(real[-1] + length)
    ids, labels, one = (torch.cat(each)[None] for each in zip(*rows))
    batch = ballast.Batch()
    grids = [[1, 2, 4]] * len(images) + [[1, 2, 2]] * dummy
    batch.update(
        input_ids=ids, labels=labels, position_ids=one.expand(3, 1, -1),
        cu_seqlens=torch.tensor(real, dtype=torch.int32),
        cu_seqlens_padded=torch.tensor(places, dtype=torch.int32), max_seqlen=max(lengths),
        image_grid_thw=torch.tensor(grids).reshape(-1, 3),
        pixel_values=torch.arange(sum(h * w for _, h, w in grids) * values).sin().view(-1, values),
    )  # fmt: skip
    batch.dummy_image = dummy
    batch.image_token = IDS["image"] if dummy else 0
    return batch


def gradients(model, inputs, count):
    """The loss, and the gradient of each weight."""
    labels = inputs.pop("labels")
    loss = huggingface.loss(model(**inputs), labels, count)
    names, weights = zip(*model.named_parameters())
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    return float(loss.detach()), dict(zip(names, found))


class LossTest(unittest.TestCase):
    def test_is_the_models_sum_over_a_count(self):
        """Of any release: transformers up to 5.14 does not pass Qwen3-VL's count on."""
        for make, values in MODELS.items():
            model = make(IDS)
            inputs = huggingface.packed(batch_of([9, 6], images=(0,), values=values))
            labels = inputs["labels"]
            rest = {key: value for key, value in inputs.items() if key != "labels"}
            learnt = int((labels[:, 1:] != -100).sum())
            outputs = model(**rest)
            mean = model(**inputs).loss
            for count in (37, torch.tensor(37)):
                found = huggingface.loss(outputs, labels, count)
                torch.testing.assert_close(found, mean * learnt / 37, rtol=1e-6, atol=0)
            torch.testing.assert_close(huggingface.loss(outputs, labels), mean, rtol=1e-6, atol=0)
            torch.testing.assert_close(
                huggingface.loss({"logits": outputs.logits}, labels, num_items_in_batch=1),
                mean * learnt, rtol=1e-6, atol=0,
            )  # fmt: skip

    def test_nothing_to_learn_is_a_loss_of_0(self):
        model = qwen2_5_vl(IDS)
        given = batch_of([7])
        given["labels"] = torch.full_like(given["labels"], -100)
        for count in (0, torch.tensor(0), None):
            loss, found = gradients(model, huggingface.packed(given), count)
            self.assertEqual(loss, 0.0)
            for name, gradient in found.items():
                self.assertTrue(gradient is None or not gradient.any(), name)


class DummyImageTest(unittest.TestCase):
    def test_reaches_the_tower_and_changes_nothing(self):
        """FSDP gathers the tower's weights on every rank, and DistributedDataParallel waits for
        a gradient of each."""
        for make, values in MODELS.items():
            model = make(IDS)
            for arguments in (huggingface.packed, huggingface.padded):
                for align in (1, 8):
                    with self.subTest(make.__name__, form=arguments.__name__, align=align):
                        given = {"lengths": [9, 6, 16], "align": align, "values": values}
                        inputs = arguments(batch_of(**given, dummy=True))
                        self.assertEqual(inputs["input_ids"].shape[1] % align, 0)
                        self.assertEqual(int((inputs["input_ids"] == IDS["image"]).sum()), 1)
                        found = gradients(model, inputs, 20)
                        wanted = gradients(model, arguments(batch_of(**given)), 20)
                        self.assertAlmostEqual(found[0], wanted[0], places=12)
                        for name, gradient in found[1].items():
                            self.assertIsNotNone(gradient, name)
                            if ".visual." in name:
                                self.assertIsNone(wanted[1][name], name)
                                self.assertFalse(gradient.any(), name)
                            else:
                                torch.testing.assert_close(gradient, wanted[1][name], msg=name)

    def test_beside_images_of_the_rank(self):
        model = qwen3_vl(IDS)
        for arguments in (huggingface.packed, huggingface.padded):
            given = {"lengths": [9, 6], "images": (0, 1), "values": 1536}
            found = gradients(model, arguments(batch_of(**given, dummy=True)), 9)
            wanted = gradients(model, arguments(batch_of(**given)), 9)
            self.assertAlmostEqual(found[0], wanted[0], places=12)
            for name, gradient in wanted[1].items():
                torch.testing.assert_close(found[1][name], gradient, msg=name)

    def test_unpacked_has_it_after_the_last_sample(self):
        samples = huggingface.unpacked(batch_of([9, 6], dummy=True), [0, 0])
        self.assertNotIn("pixel_values", samples[0])
        self.assertEqual(samples[1]["pixel_values"].shape[0], 4)
        self.assertEqual(samples[1]["input_ids"][0, 6:].tolist(), [IDS["image"], 0])
        self.assertEqual(samples[1]["attention_mask"][0].tolist(), [1] * 6 + [0] * 2)

    def test_a_batch_without_the_token_is_refused(self):
        given = batch_of([9, 6], dummy=True)
        given.image_token = 0
        with self.assertRaisesRegex(ballast.FailedPrecondition, "without image_token"):
            huggingface.packed(given)


if __name__ == "__main__":
    unittest.main()
