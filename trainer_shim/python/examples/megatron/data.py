"""A loader server over generated documents, for the training examples."""

import contextlib
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import job as jobs

VOCABULARY = 320  # bytes and a few special tokens, rounded up
CONFIG = """
    sources:
      - {{name: docs, format: webdataset, path: "docs-*.tar"}}
    model: {{profile: qwen2_5_vl, tokenizer: bytes, chat_template: chatml,
            max_pixels: {max_pixels},
            token_ids: {{image: 256, video: 257, vision_start: 258, vision_end: 259,
                        im_start: 260, im_end: 261, end_of_text: 262, pad: 262}}}}
    batch: {{global: {samples}, micro: {micro}, max_tokens: {max_tokens}}}
    topology:
      modules: {{vision: {{dp: {vision_dp}}}, language: {{dp: {dp}, pp: {pp}, tp: {cp}}}}}
      colocated: {colocated}
    balance: {{delivery: {delivery}, equal_count: {equal_count}{balance}}}
    packing: {{mode: {packing}, align: {align}}}
    serve: {{{serve}}}
"""


@contextlib.contextmanager
def served(program, *, delivery="direct", samples=8, micro=4, dp=1, vision_dp=None, pp=1, cp=1,
           packing="shard", max_pixels=50176, dataset=64, preset="mixed",
           max_tokens=8192, colocated=None, balance="", serve="memory: 512MiB",
           name=None):  # fmt: skip
    """Yields the address of a server over `dataset` generated samples, until the block
    ends.

    Args:
        program: path of `ballast-server`.
        vision_dp: data-parallel ranks of the vision tower. Default: `dp`.
        pp: pipeline stages of the language model; the vision tower then has its own
            process.
        cp: context ranks of a model that cuts whole batches itself. The loader knows
            them as tensor ranks, and pads samples so that each can be cut.
        packing: `packing.mode`.
        colocated: `topology.colocated`. Default: without a pipeline.
        balance: further keys of `balance`, each with a comma before it.
        serve: the keys of `serve`.
        name: of the configuration, where one process serves several at a time.
    """
    with tempfile.TemporaryDirectory(prefix="ballast") as folder:
        job = jobs.Job(folder, program, dataset, preset=preset)
        text = CONFIG.format(
            delivery=delivery, samples=samples, micro=micro, dp=dp, vision_dp=vision_dp or dp, pp=pp,
            max_pixels=max_pixels, max_tokens=max_tokens, cp=cp, balance=balance, serve=serve,
            colocated=str(pp == 1 if colocated is None else colocated).lower(), packing=packing,
            align=2 * cp if cp > 1 else "auto", equal_count=str(packing == "padded").lower(),
        )  # fmt: skip
        with job.serve(job.configure(name or delivery, text)) as address:
            yield address
