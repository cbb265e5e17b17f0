"""Checks what ranks trained on against the schedule and a run without faults. Pure.

A history is a list of entries as `ballast-rank --history` writes them. A job runs
several times: run k starts at a step, and counts up to the step where run k + 1
starts; what it did beyond that is trained again by the next run.
"""

import collections

PEERS = "vision and language differ"


def expected_of(plan):
    """{(step, micro-batch, module, rank): [(sample, position)]} of the schedules that
    `ballast-server plan --json` printed."""
    found = collections.defaultdict(list)
    for step in plan:
        for micro_batch in step["micro_batches"]:
            for sample in sorted(micro_batch["samples"], key=lambda s: s["place"]):
                for module, owner in sample["owner"].items():
                    key = (step["step"], sample["slot"], module, owner)
                    found[key].append((sample["sample"], sample["position"]))
    return dict(found)


def place_of(entry):
    return entry["step"], entry["micro_batch"], entry["module"], entry["dp_rank"]


def digests_of(history):
    """{(module, position): (digest, placeholder)} of a run without faults."""
    found = {}
    for entry in history:
        for sample in entry["samples"]:
            found[entry["module"], sample["position"]] = (
                sample["digest"], sample.get("placeholder", False),
            )  # fmt: skip
    return found


def _check_entry(entry, expected, digests):
    at = "run {} step {} micro-batch {} {} rank {}".format(entry["run"], *place_of(entry))
    if place_of(entry) not in expected:
        return [f"{at}: not in the schedule"]
    wanted = expected[place_of(entry)]
    got = [(s["sample"], s["position"]) for s in entry["samples"]]
    if got != wanted:
        return [f"{at}: trained on {got} instead of {wanted}"]
    problems = []
    for sample in entry["samples"]:
        found = sample["digest"], sample.get("placeholder", False)
        right = digests.get((entry["module"], sample["position"]))
        if found != right:
            problems.append(f"{at}: {sample['sample']} is {found} instead of {right}")
    return problems


def _check_order(entries, places, start):
    """Problems of one rank's entries of one run: they are its places from `start`
    on, one after the other, and may break off."""
    wanted = [place for place in places if place[0] >= start]
    got = [place_of(entry) for entry in entries]
    for number, place in enumerate(got):
        if number >= len(wanted) or place != wanted[number]:
            right = wanted[number] if number < len(wanted) else "the end"
            return [f"run {entries[number]['run']}: {place} comes where {right} should"]
    return []


def check(plan, reference, starts, history):
    """What is wrong, as lines of text; none if all is well.

    Args:
        plan: schedules of the job's steps.
        reference: the history of a run without faults.
        starts: {run: first step}, in the order of the runs.
        history: entries of all ranks and runs; those of a rank in their order.
    """
    expected = expected_of(plan)
    end = plan[-1]["step"] + 1
    digests = digests_of(reference)
    problems = []
    by_rank = collections.defaultdict(list)
    for entry in history:
        problems += _check_entry(entry, expected, digests)
        by_rank[entry["run"], entry["module"], entry["dp_rank"]].append(entry)
    places = collections.defaultdict(list)
    for place in sorted(expected):
        places[place[2:]].append(place)
    runs = list(starts)
    for number, run in enumerate(runs):
        until = starts[runs[number + 1]] if number + 1 < len(runs) else end
        trained = set()
        for (module, rank), own in places.items():
            entries = by_rank.pop((run, module, rank), [])
            problems += _check_order(entries, own, starts[run])
            trained.update(place_of(entry) for entry in entries)
        for place in sorted(expected):
            if starts[run] <= place[0] < until and place not in trained:
                problems.append(f"run {run}: {place} was never trained on")
    problems += [f"{run}: no such run" for run, *_ in by_rank]
    return problems + _check_peers(history)


def _check_peers(history):
    """Both modules train on the same samples in every micro-batch."""
    seen = collections.defaultdict(dict)
    for entry in history:
        step, micro_batch, module, rank = place_of(entry)
        key = (entry["run"], step, micro_batch, rank)
        seen[key][module] = [sample["sample"] for sample in entry["samples"]]
    return [
        f"{PEERS}: {key}: {modules}"
        for key, modules in seen.items()
        if len({tuple(samples) for samples in modules.values()}) > 1
    ]
