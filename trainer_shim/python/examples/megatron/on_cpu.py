"""Lets Megatron-Core's pipelines run on a machine without a GPU, over Gloo.

Megatron-Core names CUDA and NCCL in places where the CPU and Gloo work as well. This
replaces those calls; schedules and communicators stay Megatron-Core's.
"""

import torch
import torch.distributed as dist


def run_everywhere(run, count, *arguments):
    """Calls `run(rank, *arguments)` in `count` processes. Returns 0, or 1 if one has failed.

    Without a GPU they are forks, which have imported everything: the caller must not have
    opened a loader."""
    method = "spawn" if torch.cuda.is_available() else "fork"
    context = torch.multiprocessing.get_context(method)
    processes = [context.Process(target=run, args=(rank, *arguments)) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return max(abs(process.exitcode) for process in processes) and 1


def install():
    """Does nothing if torch has a GPU."""
    if torch.cuda.is_available():
        return
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_stream = lambda *_: None
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    torch.tensor = _not_pinned(torch.tensor)
    torch.zeros = _on_cpu(torch.zeros)
    dist.new_group = _over_gloo(dist.new_group)
    dist.new_subgroups_by_enumeration = _over_gloo(dist.new_subgroups_by_enumeration)


def _on_cpu(make):
    def made(*args, device=None, **options):
        return make(*args, device="cpu" if device == "cuda" else device, **options)

    return made


def _not_pinned(make):
    def made(*args, pin_memory=False, **options):
        return make(*args, **options)

    return made


def _over_gloo(make):
    def made(*args, backend=None, **options):
        return make(*args, backend="gloo" if backend == "nccl" else backend, **options)

    return made
