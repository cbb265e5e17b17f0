"""Megatron-Core in one process: groups of one rank, and a step without a pipeline."""

import contextlib
import tempfile

import torch
import torch.distributed as dist
from megatron.core import parallel_state

import on_cpu
from ballast.adapters import megatron_bridge


@contextlib.contextmanager
def process():
    """Megatron-Core's groups with this process as their only rank."""
    on_cpu.install()
    with tempfile.NamedTemporaryFile() as file:
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, init_method="file://" + file.name, rank=0, world_size=1)
        parallel_state.initialize_model_parallel()
        try:
            yield
        finally:
            parallel_state.destroy_model_parallel()
            dist.destroy_process_group()


def loss_sum(model, inputs):
    """Sum of the losses of the supervised tokens."""
    losses, loss_mask = model(**inputs)  # under context parallelism, this rank's part of both
    return (losses.float().reshape(-1) * loss_mask.reshape(-1)).sum()


def backward(model, batch):
    """Adds a micro-batch's part of the gradients of the step's mean loss; returns its
    part of the loss.

    The divisor is the step's number of supervised tokens on all ranks, so that the sum
    over micro-batches and ranks is the mean over the global batch.
    """
    inputs = megatron_bridge.forward_inputs(batch)
    loss = loss_sum(model, inputs) / max(batch.step_totals.label_tokens, 1)
    loss.backward()
    return float(loss.detach())
