"""All data-parallel ranks of a job in one process: one thread and one loader each.

A model that runs over every rank's batch and adds up the gradients trains on one GPU
like that many processes with a reduction.
"""

import concurrent.futures

import ballast

MODULES = ("vision", "language")


class Ranks:
    """The loaders of `count` ranks that hold both modules.

    Args:
        exchange: whether the job's delivery is `exchange`, so that loaders meet.
    """

    def __init__(self, address, count, *, device, exchange, **options):
        backend = "cuda" if device.startswith("cuda") else "host"
        ends = [
            ballast.Communicator.in_process(count, backend) if exchange else [None] * count
            for _ in MODULES
        ]
        self._loaders = []
        for rank in range(count):
            mine = {name: ends[i][rank] for i, name in enumerate(MODULES)}
            self._loaders.append(
                ballast.Loader(
                    address,
                    MODULES,
                    dp_rank=rank,
                    device=device,
                    array="torch",
                    communicator=mine if exchange else None,
                    **options,
                )  # fmt: skip
            )
        # A loader is for one thread.
        self._threads = [concurrent.futures.ThreadPoolExecutor(1) for _ in range(count)]

    def _everywhere(self, work):
        """The results of all ranks' threads, which may wait for each other."""
        pending = [thread.submit(work, loader)
                   for thread, loader in zip(self._threads, self._loaders)]  # fmt: skip
        return [one.result() for one in pending]

    def __enter__(self):
        self._everywhere(lambda loader: loader.open())
        return self

    def __exit__(self, *_):
        self._everywhere(lambda loader: loader.close())
        for thread in self._threads:
            thread.shutdown()

    @property
    def job(self):
        return self._loaders[0].job

    def __iter__(self):
        """The ranks' batches of one micro-batch after another."""
        while True:
            batches = self._everywhere(lambda loader: next(loader, None))
            if None in batches:
                return
            yield batches
