"""The library's shims of one loader: opened, asked and closed together."""

from __future__ import annotations

import json
import os
import threading
import weakref
from ctypes import byref, c_uint32, c_void_p
from typing import Any, Callable, Dict, List, Optional, Sequence

from . import _abi, _rerun, _structs
from ._arguments import check_worker
from ._waiting import Call, Worker
from .errors import BallastError, Cancelled, FailedPrecondition, Internal, ResourceExhausted
from .tensor import Part

# The process that first opened a shim here; others share its memory, and not its threads.
_connected: Optional[int] = None

GetOptions = Callable[[str], _structs.ShimOptions]


class Shims:
    """One shim a module, in the order of their exchanges.

    All modules get a micro-batch, or none does. `next` collects their parts. An
    exception in the waiting thread loses none of them: the following `next` returns the
    same micro-batch. `commit` confirms that the micro-batch has reached the caller.

    Blocking calls of the library run in a worker thread. One thread uses the object;
    `cancel` may be called from any, also during `close`.

    Args:
        modules: names, in the order of their exchanges.
        receives: modules whose batches come from tensor rank 0.
        sends: modules whose batches go to the other tensor ranks.
    """

    def __init__(
        self, modules: Sequence[str], receives: Sequence[str], sends: Sequence[str]
    ) -> None:
        self._modules = list(modules)
        self._receives = set(receives)
        self._sends = set(sends)
        self._made_in = os.getpid()
        self._process: Optional[int] = None  # process that opened the shims
        self._worker = Worker()
        # Reentrant: a signal handler may cancel while its thread holds the lock.
        self._lock = threading.RLock()
        self._handles: Dict[str, c_void_p] = {}  # guarded by _lock
        self._closed = False  # guarded by _lock
        self._cancelled = False  # guarded by _lock
        self._opening: Optional[Call[None]] = None
        self._asking: Optional[Call[bool]] = None
        self._counting: Optional[Call[int]] = None  # the last one
        self._stream: Optional[int] = None  # stream with which _asking was begun
        self._parts: List[Part] = []  # of the micro-batch that is being collected
        self._held: weakref.WeakSet[Part] = weakref.WeakSet()  # by the trainer

    # ---- Opening and closing ----

    @property
    def opened(self) -> bool:
        return len(self._handles) == len(self._modules)

    def open(self, options_of: GetOptions) -> None:
        """Creates the shims, if there are none yet. `options_of` may block.

        After an exception in the waiting thread a further call continues the wait.
        After an error it tries again.
        """
        global _connected
        self._check_process()
        if self.opened:
            return
        if self._closed:
            raise _closed()
        self._process = _connected = os.getpid()
        if self._opening is None:
            self._opening = Call(lambda: self._create(options_of))
        call = self._opening
        self._worker.begin(call)
        try:
            call.wait(until=lambda: self._cancelled)
        except BaseException:
            if call.finished:
                self._opening = None
            raise
        self._check_not_cancelled()
        self._opening = None

    def _check_process(self) -> None:
        check_worker(self._made_in)
        if self._process not in (None, os.getpid()):
            raise FailedPrecondition(
                "the loader was opened before fork(); open one in each process that uses it"
            )
        if _connected not in (None, os.getpid()):
            raise FailedPrecondition(
                "found a process forked from one that had opened a loader, whose connections have "
                "no threads here and would wait without end: start processes before the first "
                "loader is opened, or by spawn or forkserver (DataLoader(multiprocessing_context="
                '"spawn"))'
            )

    def _check_not_cancelled(self) -> None:
        if self._cancelled:
            raise Cancelled("the loader was cancelled while it opened")

    def _create(self, options_of: GetOptions) -> None:
        made: Dict[str, c_void_p] = {}
        try:
            for module in self._modules:
                self._check_not_cancelled()
                options = options_of(module)
                try:
                    made[module] = _abi.make("ballast_shim_create", byref(options))
                except BallastError as error:
                    raise _advised(error) from None
            with self._lock:
                self._check_not_cancelled()
                if not self._closed:
                    self._handles, made = made, {}
        finally:
            _destroy(list(made.values()))

    def cancel(self) -> None:
        """Ends `open` and `next`: calls that block now and all later ones."""
        with self._lock:
            self._cancelled = True
            for handle in self._handles.values():
                _abi.check(_abi.library().ballast_shim_cancel(handle))

    def close(self) -> None:
        """Destroys the shims. Ends a call that still runs after its caller was
        interrupted. An `open` that still runs destroys the shims that it makes."""
        if self._process != os.getpid():
            return  # never opened, or by the parent
        with self._lock:
            self._closed = True
            handles, self._handles = self._handles, {}
        calls: List[Optional[Call[Any]]] = [self._asking, self._counting]
        self._parts = []
        if all(call is None or call.finished for call in calls):
            _destroy(list(handles.values()))
            self._worker.stop()
        else:
            for handle in handles.values():
                _abi.library().ballast_shim_cancel(handle)
            destroying = Call(lambda: _destroy(list(handles.values())))
            self._worker.begin(destroying)
            self._worker.stop()
            if not self._worker.is_current:  # which collects garbage, too
                destroying.wait()

    # ---- Batches ----

    def next(self, stream: Optional[int]) -> Optional[List[Part]]:
        """Returns all modules' parts of the next micro-batch; None at the end.

        Until `commit`, a further call returns the same parts. After an error that is
        not final it asks only the modules that have not returned a part yet.
        """
        if self._asking is None:
            self._stream = stream
            self._asking = Call(lambda: self._collect(stream))
        elif self._stream != stream:
            raise FailedPrecondition(
                "stream: found %s; wanted %s, the stream of the interrupted `next`, which "
                "is still to be completed" % (stream or 0, self._stream or 0)
            )
        call = self._asking
        if not call.finished:
            self._worker.begin(call)
        try:
            found = call.wait()
        except ResourceExhausted as error:
            self._asking = None
            held = sorted(map(str, self._held))
            hint = _rerun.hint()
            if not held and not hint:
                raise
            named = ". Still referred to: %s. Drop them, or raise Loader(max_batches_held=...)"
            raise ResourceExhausted(
                "%s%s%s" % (error, named % "; ".join(held) if held else "", hint)
            ) from error
        except BaseException:
            if call.finished and call.failed:
                self._asking = None
            raise
        if not found:
            self._asking = None
            return None
        return list(self._parts)

    def commit(self) -> None:
        """Confirms that the caller has the micro-batch that `next` returned."""
        self._held.update(self._parts)
        self._parts = []
        self._asking = None

    def _collect(self, stream: Optional[int]) -> bool:
        """Completes _parts. False at the end."""
        for module in self._modules[len(self._parts) :]:
            if not self._ask(module, stream):
                return False
        places = {(part.info.step, part.info.micro_batch) for part in self._parts}
        if len(places) != 1:
            raise Internal(
                "%s are at different (step, micro-batch): %s; start again from the last "
                "checkpoint" % (" and ".join(self._modules), sorted(places))
            )
        return True

    def _ask(self, module: str, stream: Optional[int]) -> bool:
        """Appends a module's next part, sent to or by its tensor peers. False at the
        end."""
        library = _abi.library()
        shim = self._handle(module)
        receives = module in self._receives
        call = (
            library.ballast_shim_receive_from_tensor_peer if receives else library.ballast_shim_next
        )
        handle = c_void_p()
        code = call(shim, stream, byref(handle))
        if code == _structs.OUT_OF_RANGE:
            return False
        _abi.check(code)
        part = Part(handle)  # which releases it if sending fails
        if module in self._sends:
            _abi.check(library.ballast_shim_send_to_tensor_peers(shim, stream))
        self._parts.append(part)
        return True

    # ---- What any shim knows ----

    def job(self) -> Dict[str, Any]:
        return self._parsed("ballast_shim_job")

    def schedule(self) -> Dict[str, Any]:
        """The schedule of the last batch's step."""
        if self._asking is not None:
            raise FailedPrecondition(
                "schedule: the loader's last `next` was interrupted; call `next` first, "
                "which completes it"
            )
        return self._parsed("ballast_shim_schedule")

    def checkpoint(self, next_step: int) -> bytes:
        # With an explicit step the library reads only constants, so this is safe during a `next`
        # whose caller was interrupted.
        return _abi.take_bytes("ballast_shim_checkpoint", self._any(), next_step)

    def num_micro_batches(self, step: int) -> int:
        """Number of micro-batches of a step; 0 if it has none."""
        self._counting = Call(lambda: self._count(step))
        self._worker.begin(self._counting)
        return int(self._counting.wait() or 0)

    def _count(self, step: int) -> int:
        number = c_uint32()
        code = _abi.library().ballast_shim_num_micro_batches(self._any(), step, byref(number))
        if code == _structs.OUT_OF_RANGE:
            return 0
        _abi.check(code)
        return number.value

    def report_timing(self, module: str, *timing: Any) -> None:
        shim = self._handle(module)
        _abi.check(_abi.library().ballast_shim_report_timing(shim, *timing))

    def _parsed(self, name: str) -> Dict[str, Any]:
        parsed: Dict[str, Any] = json.loads(_abi.take_bytes(name, self._any()))
        return parsed

    def _any(self) -> c_void_p:
        return self._handle(self._modules[-1])

    def _handle(self, module: str) -> c_void_p:
        handle = self._handles.get(module)
        if handle is None:
            raise _closed()
        return handle


def _closed() -> BallastError:
    return FailedPrecondition(
        "the loader was closed, by its `close` or at the end of the process; ask while it is open"
    )


def _advised(error: BallastError) -> BallastError:
    """The error; if there is no GPU to use, with advice."""
    text = str(error)
    if "asking for the device" not in text and "BACKEND_CUDA" not in text:
        return error
    return type(error)(
        "device: found no GPU that this process can use (%s). Without one, pass "
        'Loader(device="cpu"): the batches are the same. With one, look at `nvidia-smi` '
        "and CUDA_VISIBLE_DEVICES" % text
    )


def _destroy(handles: List[c_void_p]) -> None:
    for handle in reversed(handles):
        _abi.library().ballast_shim_destroy(handle)
