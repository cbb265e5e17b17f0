"""Interrupting a loader: signal handlers that raise, Ctrl-C, cancel and close."""

import contextlib
import multiprocessing
import os
import signal
import threading
import unittest
from unittest import mock

import ballast
from ballast import _abi
from ballast._waiting import Call, Worker
from tests.harness import tools

RANKS = {"vision": 0, "language": 1}


class Raised(Exception):
    """Raised by a signal handler."""


class Hooked:
    """The library, with a hook that runs before the functions of some names."""

    def __init__(self, library, **hooks):
        self._library = library
        self._hooks = hooks

    def __getattr__(self, name):
        function = getattr(self._library, name)
        hook = self._hooks.get(name)
        if hook is None:
            return function

        def call(*arguments):
            hook()
            return function(*arguments)

        return call


def hooked(**hooks):
    return mock.patch.object(_abi, "_library", Hooked(_abi.library(), **hooks))


@contextlib.contextmanager
def handler(number, function):
    before = signal.signal(number, function)
    try:
        yield
    finally:
        signal.signal(number, before)


def identity(batch):
    return batch.step, batch.micro_batch, batch.digest()


class InterruptTest(tools.TwoServersTest):
    def both(self, **options):
        return self.loader(self.direct_address, ("vision", "language"), RANKS, **options)

    def test_handler_that_raises_between_two_modules_keeps_them_aligned(self):
        with self.both() as loader:
            wanted = [identity(batch) for batch in loader]
        calls = []

        def interrupt_second_module():
            calls.append(1)
            if len(calls) == 4:  # language, in the second micro-batch
                os.kill(os.getpid(), signal.SIGALRM)

        def raise_it(*_):
            raise Raised

        with handler(signal.SIGALRM, raise_it), self.both() as loader:
            with hooked(ballast_shim_next=interrupt_second_module):
                got = [identity(next(loader))]
                with self.assertRaises(Raised):
                    next(loader)
                # The second micro-batch has not been returned.
                self.assertEqual(loader.state_dict()["next_step"], 0)
                got.extend(identity(batch) for batch in loader)
        self.assertEqual(got, wanted)

    def test_error_that_is_not_final_keeps_the_module_that_has_answered(self):
        with self.both() as loader:
            wanted = [identity(batch) for batch in loader]
        calls = []

        def refuse_second_module():
            calls.append(1)
            if len(calls) == 2:
                raise ballast.ResourceExhausted("too many batches are held")

        with self.both() as loader:
            with hooked(ballast_shim_next=refuse_second_module):
                with self.assertRaises(ballast.ResourceExhausted):
                    next(loader)
                got = [identity(batch) for batch in loader]
        self.assertEqual(got, wanted)

    def test_ctrl_c_ends_a_wait_and_the_next_call_returns_that_batch(self):
        with self.direct("vision") as loader:
            wanted = identity(next(loader))
        mine, peers = ballast.Communicator.in_process(2)
        waits = threading.Event()

        def press():
            waits.wait(tools.TIMEOUT_S)
            os.kill(os.getpid(), signal.SIGINT)

        with handler(signal.SIGINT, signal.default_int_handler):
            with self.loader(self.address, "vision", 0, communicator=mine) as loader:
                presser = threading.Thread(target=press)
                presser.start()
                with hooked(ballast_shim_next=waits.set):
                    with self.assertRaises(KeyboardInterrupt):
                        next(loader)  # waits for a rank that has not come
                presser.join()
                with self.assertRaises(ballast.FailedPrecondition):
                    loader.schedule()
                self.assertEqual(loader.state_dict()["next_step"], 0)
                with self.loader(self.address, "vision", 1, communicator=peers) as peer:
                    thread = threading.Thread(target=lambda: next(peer))
                    thread.start()
                    self.assertEqual(identity(next(loader)), wanted)
                    thread.join()

    def test_close_after_an_interrupt_ends_the_call(self):
        mine, peers = ballast.Communicator.in_process(2)
        waits = threading.Event()

        def press():
            waits.wait(tools.TIMEOUT_S)
            os.kill(os.getpid(), signal.SIGINT)

        with handler(signal.SIGINT, signal.default_int_handler):
            presser = threading.Thread(target=press)
            presser.start()
            with self.assertRaises(KeyboardInterrupt):
                with self.loader(self.address, "vision", 0, communicator=mine) as loader:
                    with hooked(ballast_shim_next=waits.set):
                        next(loader)
            presser.join()
        with self.assertRaisesRegex(ballast.FailedPrecondition, "closed"):
            next(loader)
        peers.close()

    def test_cancel_ends_open(self):
        nobody = "unix:" + self.folder + "/nobody.sock"
        connection = ballast.Connection((nobody,), wait_for_server=20)
        loader = ballast.Loader(connection, "vision", device="cpu", array="numpy")
        opens = threading.Event()

        def cancel():
            opens.wait(tools.TIMEOUT_S)
            loader.cancel()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with hooked(ballast_shim_create=opens.set):
            with self.assertRaises(ballast.Cancelled):
                loader.open()
        canceller.join()
        with self.assertRaises(ballast.Cancelled):
            next(loader)
        loader.close()

    def test_cancel_before_open(self):
        loader = self.both()
        loader.cancel()
        with self.assertRaises(ballast.Cancelled):
            next(loader)
        loader.close()

    def test_close_waits_for_cancel(self):
        loader = self.both().open()
        order = []
        destroyed = threading.Event()
        closer = threading.Thread(target=loader.close)

        def cancelling():
            order.append("cancel")
            if len(order) == 1:
                closer.start()
                destroyed.wait(0.2)  # would come if close did not wait

        def destroying():
            order.append("destroy")
            destroyed.set()

        with hooked(ballast_shim_cancel=cancelling, ballast_shim_destroy=destroying):
            loader.cancel()
            closer.join()
        self.assertEqual(order, ["cancel", "cancel", "destroy", "destroy"])

    def test_a_thread_that_still_asks_at_exit_learns_why(self):
        loader = self.both()
        next(loader)
        loader._finalizer()  # as at the end of the process, whose daemons still run
        for ask in (loader.next, loader.schedule, loader.num_micro_batches):
            with self.assertRaisesRegex(ballast.FailedPrecondition, "closed.* end of the process"):
                ask()

    def test_a_fork_of_a_process_with_a_loader_opens_none(self):
        """Neither the parent's loader nor one that it makes: connections have no threads there."""

        def in_a_fork():
            for each in (loader, self.both()):
                with self.assertRaisesRegex(ballast.FailedPrecondition, "fork"):
                    next(each)

        with self.both() as loader:
            first = identity(next(loader))
            fork = multiprocessing.get_context("fork").Process(target=in_a_fork, daemon=True)
            fork.start()
            self.addCleanup(fork.kill)
            fork.join(tools.TIMEOUT_S / 4)
            self.assertEqual(fork.exitcode, 0)
            self.assertLess(first[:2], identity(next(loader))[:2])


class WorkerTest(unittest.TestCase):
    def test_a_call_runs_once_and_answers_again(self):
        runs = []
        call = Call(lambda: runs.append(1) or len(runs))
        worker = Worker()
        for _ in range(3):
            worker.begin(call)
        self.assertEqual(call.wait(), 1)
        self.assertEqual(call.wait(), 1)
        after = Call(lambda: len(runs))
        worker.begin(after)
        self.assertEqual(after.wait(), 1)
        worker.stop()

    def test_an_exception_reaches_the_caller(self):
        def fail():
            raise Raised("here")

        call = Call(fail)
        worker = Worker()
        worker.begin(call)
        for _ in range(2):
            with self.assertRaisesRegex(Raised, "here"):
                call.wait()
        self.assertTrue(call.failed)
        worker.stop()

    def test_a_thread_that_cannot_be_started_is_tried_again(self):
        call = Call(lambda: 7)
        worker = Worker()
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("no thread")):
            for _ in range(2):
                with self.assertRaisesRegex(RuntimeError, "no thread"):
                    worker.begin(call)
        worker.begin(call)
        self.assertEqual(call.wait(), 7)
        worker.stop()

    def test_until_ends_the_wait_but_not_the_call(self):
        may_end = threading.Event()
        call = Call(may_end.wait)
        worker = Worker()
        worker.begin(call)
        self.assertIsNone(call.wait(until=lambda: True))
        self.assertFalse(call.finished)
        may_end.set()
        self.assertTrue(call.wait())
        worker.stop()


if __name__ == "__main__":
    unittest.main()
