"""The golden path of docs/megatron.md, as it stands on the page: with a real MimoModel, a server
whose micro-batches have dummy images, and hooks as Bridge calls them."""

import re
import types
import unittest
import weakref
from unittest import mock

import ballast
import model as models
import single
from ballast.adapters import bridge_iterators, megatron_bridge
from tests.harness import tools
from tests.trainer_shim.python import split_job

ADDRESS = "unix:/run/ballast/a.sock"
HOOK = "cfg.model.register_pre_wrap_hook(megatron_bridge.accept_dummy_images)\n"
RANKS, STEPS, MICRO_BATCHES = 4, 2, 2


def program():
    """The page's golden path, which comes before any section."""
    with open("docs/megatron.md", encoding="utf-8") as file:
        start = file.read().partition("\n## ")[0]
    return re.search(r"<!-- golden path.*?\n```python\n(.*?)```", start, re.DOTALL)[1]


class Provider:
    """Bridge's MegatronMIMOProvider: hooks run over the list of models, before data
    parallelism wraps them."""

    def __init__(self, make):
        self._make = make
        self._hooks = []

    def register_pre_wrap_hook(self, hook):
        self._hooks.append(hook)

    def provide_distributed_model(self):
        chosen = [self._make()]
        for hook in self._hooks:
            result = hook(chosen)
            chosen = chosen if result is None else result
        return chosen


class Group:
    def __init__(self, rank, size):
        self.rank = lambda: rank
        self.size = lambda: size


class BridgePageTest(tools.ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(single.process())
        config = cls.folder + "/job.yaml"
        images, step, micro, align = split_job.JOBS["few"]
        with open(config, "w", encoding="utf-8") as file:
            file.write(split_job.CONFIG % (
                images, "qwen2_5_vl", step, micro, "paired", "direct", align
            ))  # fmt: skip
        cls.sizes = {"global_batch_size": step, "micro_batch_size": micro}
        cls.address = "unix:" + cls.folder + "/a.sock"
        cls.enterClassContext(cls().server(config, cls.address))
        ids = ballast.Connection.of(cls.address).job()["model"]["token_ids"]
        cls.image_token = int(ids["image"])
        cls.source = models.hugging_face(ids, 320, hidden=32, layers=1)

    def setUp(self):
        self.dummies = 0
        on_cpu = bridge_iterators.opened
        for target, name, value in (
            (megatron_bridge, "_prepared", weakref.WeakSet()),  # by this test alone
            (bridge_iterators, "opened",
             lambda servers, options: on_cpu(servers, dict(options, device="cpu", array="torch"))),
        ):  # fmt: skip
            patch = mock.patch.object(target, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def bare_model(self):
        """MimoModel as its provider makes it, with an encoder that knows no dummy image."""
        with mock.patch.object(megatron_bridge, "accept_dummy_image", lambda tower: tower):
            return models.mimo_model(self.source, self.image_token)

    def pretrain(self, cfg, forward_step, build_data_iterators_fn):
        """The ranks of vision, one after another."""
        (model,) = cfg.model.provide_distributed_model()
        alone = Group(0, 1)
        for rank in range(RANKS):
            groups = types.SimpleNamespace(dp=Group(rank, RANKS), tp=alone, pp=alone, cp=alone)
            infra = types.SimpleNamespace(pg_collections={"images": groups, "language": None})
            train, _ = build_data_iterators_fn(cfg, infra)
            self.addCleanup(train.iterable.shutdown)
            for _ in range(STEPS * MICRO_BATCHES):
                forward_step(train, model)

    def forward_step(self, iterator, model):
        inputs = next(iterator)["modality_inputs"]
        if inputs is not None:
            self.dummies += "dummy_image" in inputs["images"]["qwen_visual"]
            model.modality_submodules["images"](encoder_inputs=inputs["images"])

    def run_page(self, text):
        self.assertIn(ADDRESS, text)
        cfg = types.SimpleNamespace(
            dataset=types.SimpleNamespace(), model=Provider(self.bare_model),
            train=types.SimpleNamespace(**self.sizes),
        )  # fmt: skip
        exec(
            compile(text.replace(ADDRESS, self.address), "docs/megatron.md", "exec"),
            {"cfg": cfg, "forward_step": self.forward_step,
             "pretrain_megatron_mimo": self.pretrain},
        )  # fmt: skip

    def test_it_is_short(self):
        self.assertLessEqual(len(program().splitlines()), 10)

    def test_it_runs_over_dummy_images(self):
        self.run_page(program())
        self.assertGreater(self.dummies, 0)

    def test_without_the_hook_it_is_refused_before_the_first_batch(self):
        text = program()
        self.assertIn(HOOK, text)
        with self.assertRaisesRegex(
            ballast.FailedPrecondition, r"register_pre_wrap_hook\(megatron_bridge.accept_dummy_im"
        ):
            self.run_page(text.replace(HOOK, ""))
        self.assertEqual(self.dummies, 0)


if __name__ == "__main__":
    unittest.main()
