"""TRL's own trainers: SFT on agents' conversations, with calls of tools and answers that are
not learnt, and DPO on preference pairs. By TRL's collators and by Ballast's batches the losses
are the same.
"""

import importlib.util
import json
import os
import sys
import unittest

import ballast
from tests.harness import tools

MISSING = [name for name in ("trl", "transformers", "torch", "datasets", "jinja2", "numpy")
           if importlib.util.find_spec(name) is None]  # fmt: skip
STEPS = 4
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# As Qwen's, with marks of what is learnt, which TRL wants.
TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}{{ '<tool_call>' + (c.function | tojson) }}{% endfor %}"
    "{{ '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}"
    "{% else %}{{ m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# TRL learns all after the prompt, so nothing follows an answer's end.
PAIR_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
PAIRS_CONFIG = """
sources: [{name: pairs, format: jsonl, path: pairs.jsonl, pairs: true}]
order: {shuffle: false}
model: {profile: qwen3_vl, tokenizer: tokenizer.json, chat_template: checkpoint}
batch: {global: 2, micro: 2, max_tokens: 1024}
balance: {equal_count: true}
packing: {mode: %s}
topology:
  modules: {language: {dp: 1}}
serve: {memory: 64MiB}
"""
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}
CONFIG = """
sources: [{name: agents, format: jsonl, path: agents.jsonl}]
order: {shuffle: false}
model: {profile: qwen3_vl, tokenizer: tokenizer.json, chat_template: checkpoint}
batch: {global: 2, micro: 2, max_tokens: 1024}
balance: {equal_count: true}
packing: {mode: padded}
topology:
  modules: {language: {dp: 1}}
serve: {memory: 64MiB}
"""


def pair(number):
    """The prompt of every third pair has an answer, and every fourth answer two turns."""
    turns = [{"role": "user", "content": "How is it in %s?" % ("abc"[number % 3] * (number + 1))}]
    if number % 3 == 0:
        turns += [{"role": "assistant", "content": "Where?"}, {"role": "user", "content": "Here."}]
    good = [{"role": "assistant", "content": "It is fine, %d times." % number}]
    bad = [{"role": "assistant", "content": "No" + " idea" * number}]
    return {"prompt": turns, "chosen": good, "rejected": bad}


def conversation(number):
    """Turns of different lengths, every third one without a call."""
    place = "abc"[number % 3] * (number + 1)
    turns = [{"role": "user", "content": "How is it in %s?" % place}]
    if number % 3:
        call = {"type": "function", "function": {"name": "weather", "arguments": {"place": place}}}
        turns += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "%d degrees" % (7 * number)},
        ]
    return turns + [{"role": "assistant", "content": "It is fine in %s." % place}]


@unittest.skipIf(MISSING, "SKIPPED: Python lacks %s (BALLAST_PYTHON)" % ", ".join(MISSING))
class TrlTest(tools.ToolTest):
    def tokenizer(self, template=TEMPLATE):
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokens = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
        tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokens.decoder = decoders.ByteLevel()
        names = (*SPECIALS, "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
        tokens.add_special_tokens([AddedToken(name, special=True) for name in names])
        tokens.save(self.path("tokenizer.json"))
        self.write("chat_template.jinja", template)
        made = PreTrainedTokenizerFast(
            tokenizer_object=tokens, eos_token=SPECIALS[2], pad_token=SPECIALS[0]
        )
        made.chat_template = template
        return made

    def model(self, tokenizer):
        import torch
        import transformers

        torch.manual_seed(3)
        return transformers.Qwen3ForCausalLM(
            transformers.Qwen3Config(
                vocab_size=len(tokenizer), hidden_size=32, intermediate_size=32, num_hidden_layers=2,
                num_attention_heads=2, num_key_value_heads=2, head_dim=16, pad_token_id=None,
            )
        ).float()  # fmt: skip

    def options(self, **options):
        return dict(
            output_dir=self.path("out"), use_cpu=True, bf16=False, max_steps=STEPS, report_to=[],
            per_device_train_batch_size=2, gradient_accumulation_steps=1, learning_rate=1e-3,
            lr_scheduler_type="constant", save_strategy="no", disable_tqdm=True, max_length=None,
            **options,
        )  # fmt: skip

    def losses(self, tokenizer, rows, loader=None):
        """The loss of each step."""
        import torch
        import trl
        from datasets import Dataset

        losses = []

        class Trainer(trl.SFTTrainer):
            def _get_train_sampler(self, *arguments):
                return torch.utils.data.SequentialSampler(self.train_dataset)

            def get_train_dataloader(self):
                if loader is None:
                    return super().get_train_dataloader()
                return map(inputs_of, loader)

            def training_step(self, *arguments, **options):
                loss = super().training_step(*arguments, **options)
                losses.append(float(loss))
                return loss

        def inputs_of(batch):
            inputs = ballast.adapters.huggingface.padded_text(batch)
            # The model counts from the mask.
            return {key: inputs[key] for key in ("input_ids", "labels", "attention_mask")}

        options = self.options(
            packing=False, assistant_only_loss=True, activation_checkpointing=False
        )
        trainer = Trainer(
            model=self.model(tokenizer), processing_class=tokenizer,
            train_dataset=Dataset.from_list(rows), args=trl.SFTConfig(**options),
        )  # fmt: skip
        trainer.train()
        return losses

    def dpo(self, tokenizer, rows, loader=None):
        """The losses of the steps, and the batches that the trainer got."""
        import torch
        import trl
        from datasets import Dataset

        losses, batches = [], []

        def inputs_of(batch):
            with self.assertRaisesRegex(ballast.FailedPrecondition, "found preference pairs"):
                ballast.adapters.padded.rows(batch, pad=0)
            inputs = ballast.adapters.preferences.rows(batch, pad=tokenizer.pad_token_id)
            del inputs["position_ids"]  # the model counts from the mask
            return inputs

        class Trainer(trl.DPOTrainer):
            def _get_train_sampler(self, *arguments):
                return torch.utils.data.SequentialSampler(self.train_dataset)

            def get_train_dataloader(self):
                if loader is None:
                    return super().get_train_dataloader()
                return map(inputs_of, loader)

            def training_step(self, model, inputs, *arguments):
                batches.append({key: value.clone() for key, value in inputs.items()})
                loss = super().training_step(model, inputs, *arguments)
                losses.append(float(loss))
                return loss

        trainer = Trainer(
            model=self.model(tokenizer), ref_model=self.model(tokenizer),
            processing_class=tokenizer, train_dataset=Dataset.from_list(rows),
            args=trl.DPOConfig(**self.options()),
        )  # fmt: skip
        trainer.train()
        return losses, batches

    def test_preference_pairs_are_those_of_its_own_collator(self):
        import torch

        torch.set_num_threads(1)
        os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]
        tokenizer = self.tokenizer(PAIR_TEMPLATE)
        rows = [pair(i) for i in range(2 * STEPS)]
        wanted, batches = self.dpo(tokenizer, rows)
        self.assertLess(wanted[-1], wanted[0])
        self.write("pairs.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        for mode in ("padded", "shard"):
            config = self.write(mode + ".yaml", PAIRS_CONFIG % mode)
            said = self.ok("ballast-server", "index", "--config", config)
            self.assertRegex(said, " 0 bad|up to date")
            with self.server(config, "127.0.0.1:0") as (address,):
                with ballast.Loader(
                    address, modules=["language"], device="cpu", array="torch", steps=STEPS
                ) as loader:
                    found, ours = self.dpo(tokenizer, rows, loader)
            for step, (one, other) in enumerate(zip(ours, batches, strict=True)):
                self.assertEqual(one.keys(), other.keys())
                for key, value in other.items():
                    self.assertTrue(torch.equal(one[key], value), "%s of step %d" % (key, step))
            for step, (one, other) in enumerate(zip(found, wanted, strict=True)):
                self.assertAlmostEqual(one, other, delta=1e-5, msg="step %d" % step)

    def test_losses_are_those_of_its_own_collator(self):
        import torch

        torch.set_num_threads(1)
        # The server's Python is this one.
        os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]
        tokenizer = self.tokenizer()
        rows = [{"messages": conversation(i), "tools": [TOOL]} for i in range(2 * STEPS)]
        wanted = self.losses(tokenizer, rows)
        self.assertEqual(len(wanted), STEPS)
        self.assertLess(wanted[-1], wanted[0])
        self.write("agents.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        config = self.write("job.yaml", CONFIG)
        said = self.ok("ballast-server", "index", "--config", config)
        self.assertIn(" 0 bad", said)
        with self.server(config, "127.0.0.1:0") as (address,):
            with ballast.Loader(
                address, modules=["language"], device="cpu", array="torch", steps=STEPS
            ) as loader:
                found = self.losses(tokenizer, rows, loader)
        for step, (one, other) in enumerate(zip(found, wanted, strict=True)):
            self.assertAlmostEqual(one, other, delta=1e-5, msg="step %d" % step)


if __name__ == "__main__":
    unittest.main()
