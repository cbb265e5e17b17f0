"""LLaVA-OneVision's videos from files to a loss: a server, a loader and the adapter
beside the processor and a small random model of transformers, on the same files.

As intern_videos_test.py, for a model that takes videos apart from images.
"""

import unittest

from tests.trainer_shim.python import intern_videos_test as base

#: The videos of the fourth differ in their number of frames.
CONVERSATIONS = [
    [("user", ["a.mp4", "What moves?"]), ("assistant", ["A fox."])],
    [("user", ["Hello"]), ("assistant", ["Hello, world!"])],
    [("user", [(448, 448), " and ", "b.webm", "Which?"]), ("assistant", ["The second."])],
    [("user", ["b.webm", "then", "a.mp4", "Same?"]), ("assistant", ["No.\n"])],
    [("user", ["b.webm", "before ", (300, 200)]), ("assistant", ["Yes."]),
     ("user", [(200, 300), "b.webm"]), ("assistant", ["Yes, too."])],
]  # fmt: skip


@unittest.skipIf(base.MISSING, "SKIPPED: this needs %s (BALLAST_PYTHON)" % ", ".join(base.MISSING))
class OneVisionVideosTest(base.VideosTest):
    family = "llava_onevision"
    conversations = CONVERSATIONS

    def processor(self, family_models):
        from check_family_chats import ONEVISION_VIDEOS
        from transformers.models.llava_onevision.video_processing_llava_onevision import (
            LlavaOnevisionVideoProcessor,
        )

        processor = family_models.processor_of("llava_onevision")
        processor.chat_template = ONEVISION_VIDEOS
        mean, std = family_models.CHECKPOINTS["llava_onevision"]
        processor.video_processor = LlavaOnevisionVideoProcessor(image_mean=mean, image_std=std)
        return processor

    def inputs_of(self, processor, turns):
        """As the base, of videos that the processor cannot stack: each is made alone, and
        its text put in the place of its mark."""
        videos = [p for _, parts in turns for p in parts if base.is_video(p)]
        if len(set(videos)) < 2:
            return super().inputs_of(processor, turns)
        made = [
            super(OneVisionVideosTest, self).inputs_of(processor, [("user", [name])])
            for name in videos
        ]
        text = processor.apply_chat_template(
            [{"role": role, "content": [
                {"type": "video"} if base.is_video(p) else {"type": "text", "text": p}
                for p in parts]} for role, parts in turns], tokenize=False)  # fmt: skip
        for one in made:
            text = text.replace(
                "<video>", processor.replace_video_token(one, 0).replace("<video>", "<vide0>"), 1
            )
        inputs = processor.tokenizer(text.replace("<vide0>", "<video>"), return_tensors="pt")
        inputs["pixel_values_videos"] = [one["pixel_values_videos"][0] for one in made]
        return inputs

    def test_losses_are_those_of_transformers(self):
        import torch

        from ballast.adapters.huggingface_families import Family
        from tests.trainer_shim.python import family_models

        processor = self.prepare()
        batch = self.batch("shard")
        rows = self.batch("padded")
        self.assertEqual(sum(batch.videos_per_sample), 6)
        self.assertEqual(sum(batch.images_per_sample), 3)
        model = family_models.model_of("llava_onevision", processor)
        model.config.video_token_id = processor.video_token_id
        model.model.config.video_token_id = processor.video_token_id
        adapter = Family(model.config)
        wanted, counts = [], []
        with torch.no_grad():
            for sample, own in zip(batch.samples, adapter.unpacked(batch)):
                inputs = self.inputs_of(processor, CONVERSATIONS[sample.ordinal])
                self.assertEqual(own["input_ids"].tolist(), inputs["input_ids"].tolist())
                labels = own["labels"]
                videos = list(inputs.get("pixel_values_videos", ()))
                self.assertEqual(len(own.get("pixel_values_videos", ())), len(videos))
                for ours, theirs in zip(own.get("pixel_values_videos", ()), videos):
                    self.assertEqual(ours.shape, theirs.shape)
                    self.assertEqual(float((ours - theirs).abs().max()), 0)
                if "pixel_values" in inputs:
                    inputs["batch_num_images"] = torch.tensor([len(inputs["image_sizes"])])
                if len({len(video) for video in videos}) > 1:
                    inputs = adapter.features(model, inputs)
                    loss = float(model(**adapter.features(model, own)).loss)
                else:
                    loss = float(model(**own).loss)
                    encoded = float(model(**adapter.features(model, own)).loss)
                    self.assertAlmostEqual(encoded, loss, delta=abs(loss) * 1e-6)
                theirs = float(model(**inputs, labels=labels).loss)
                self.assertAlmostEqual(loss, theirs, delta=abs(theirs) * 2e-6)
                wanted.append(theirs)
                counts.append(int((labels != -100).sum()))
            mean = sum(loss * n for loss, n in zip(wanted, counts)) / sum(counts)
            for arguments in (adapter.padded(rows), adapter.packed(batch)):
                loss = float(model(**adapter.features(model, arguments)).loss)
                self.assertAlmostEqual(loss, mean, delta=abs(mean) * 2e-6)


if __name__ == "__main__":
    unittest.main()
