"""TRL's own trainer on agents' conversations, with calls of tools and answers that are not
learnt: by its own collator, and by Ballast's batches. Both have the same losses.
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
    def tokenizer(self):
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokens = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
        tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokens.decoder = decoders.ByteLevel()
        names = (*SPECIALS, "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
        tokens.add_special_tokens([AddedToken(name, special=True) for name in names])
        tokens.save(self.path("tokenizer.json"))
        self.write("chat_template.jinja", TEMPLATE)
        made = PreTrainedTokenizerFast(
            tokenizer_object=tokens, eos_token=SPECIALS[2], pad_token=SPECIALS[0]
        )
        made.chat_template = TEMPLATE
        return made

    def losses(self, tokenizer, rows, loader=None):
        """The loss of each step."""
        import torch
        import transformers
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

        torch.manual_seed(3)
        model = transformers.Qwen3ForCausalLM(
            transformers.Qwen3Config(
                vocab_size=len(tokenizer), hidden_size=32, intermediate_size=32, num_hidden_layers=2,
                num_attention_heads=2, num_key_value_heads=2, head_dim=16, pad_token_id=None,
            )
        ).float()  # fmt: skip
        trainer = Trainer(
            model=model, processing_class=tokenizer, train_dataset=Dataset.from_list(rows),
            args=trl.SFTConfig(
                output_dir=self.path("out"), use_cpu=True, bf16=False, max_steps=STEPS, report_to=[],
                per_device_train_batch_size=2, gradient_accumulation_steps=1, learning_rate=1e-3,
                lr_scheduler_type="constant", save_strategy="no", disable_tqdm=True, packing=False,
                assistant_only_loss=True, max_length=None, activation_checkpointing=False,
            ),
        )  # fmt: skip
        trainer.train()
        return losses

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
