"""Megatron-Core's rerun state machine, whose data iterators keep every micro-batch of a step
to compute the step again (Megatron-LM's `--rerun-mode`, by default `validate_results`)."""

from __future__ import annotations

import sys
from typing import Any, Mapping, Optional


def mode() -> Optional[str]:
    """The mode of this process's state machine; None if there is no machine, or if it is
    disabled. Makes none."""
    module: Any = sys.modules.get("megatron.core.rerun_state_machine")
    machine = getattr(module, "_GLOBAL_RERUN_STATE_MACHINE", None)
    if machine is None:
        return None
    found = machine.get_mode()
    return None if found == module.RerunMode.DISABLED else str(found.value)


def batches_held(job: Mapping[str, Any]) -> int:
    """`max_batches_held` for a trainer that keeps the micro-batches of a step: the
    largest number in any step of the job, plus the pipeline's batches.

    A scheduled step has at most a micro-batch for each sample of a language rank, or of
    ranks that share a pack, in whole groups of `packing.virtual_pipeline_group`. Only a bound:
    memory is taken for the batches that are held.
    """
    sizes = [each["samples"] for each in job.get("step_ranges") or ()]
    samples = max([job["global_batch"], *sizes])
    if 0 in sizes:
        # If steps differ in size, `global_batch` is the largest in the first epoch.
        samples *= 2
    sharing = job.get("dynamic_cp") or 1
    grid = max(min(module["dp"] for module in job["modules"]) // sharing, 1)
    group = job.get("virtual_pipeline_group") or 1
    scheduled = -(-samples // (grid * group)) * group
    stages = max(module.get("pp") or 1 for module in job["modules"])
    return int(max(samples // job["micro_batch"], scheduled)) + max(stages + 2, 4)


def hint() -> str:
    """What to add to the error of a loader that has no room; empty without a machine."""
    found = mode()
    if found is None:
        return ""
    return (
        ". Megatron's rerun_mode is %r: its RerunDataIterator keeps every micro-batch of a step. "
        "Make the loader after Megatron's initialization and leave max_batches_held out, set it "
        "to the micro-batches of a step and two more, or train with --rerun-mode disabled" % found
    )
