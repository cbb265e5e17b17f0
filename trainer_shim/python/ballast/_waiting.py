"""Blocking calls of the library that leave the calling thread interruptible.

Python runs signal handlers in the main thread only, and only between two of its
instructions: never while that thread is inside the library. So a `Worker` makes the
call, and the caller waits in Python, where Ctrl-C or a handler that raises takes effect
at once. The call itself continues; `Call.wait` may be called again and then returns the
same result. No signal handler ever runs inside the call.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any, Callable, Generic, Optional, Tuple, TypeVar

T = TypeVar("T")

# A signal ends a wait at once if the kernel delivers it to the main thread, as it
# does unless that thread blocks it. A wait looks for others this often.
SLICE_S = 0.05


class Call(Generic[T]):
    """A function that a worker runs once, and its result."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.finished = False
        self._function: Optional[Callable[[], T]] = function
        self._result: Optional[T] = None
        self._error: Optional[BaseException] = None
        self._wake = threading.Lock()
        self._wake.acquire()

    @property
    def failed(self) -> bool:
        return self._error is not None

    def run(self) -> None:
        """Runs the function, unless it has been run before."""
        function, self._function = self._function, None
        if function is None:
            return
        self._result, self._error = _outcome(function)
        del function
        self.finished = True
        self._wake.release()

    def wait(self, until: Callable[[], bool] = lambda: False) -> Optional[T]:
        """The function's result, or its exception. None as soon as `until` is true,
        which is checked every SLICE_S seconds."""
        # The flag, not the lock, says that the call has finished: an exception may
        # arrive right after the lock was taken.
        while not self.finished:
            self._wake.acquire(timeout=SLICE_S)
            if not self.finished and until():
                return None
        if self._error is not None:
            try:
                raise self._error
            finally:
                del self  # the traceback would keep the call, which keeps the error
        return self._result


# A separate function, so that an error's traceback does not refer to the Call that
# keeps it.
def _outcome(function: Callable[[], T]) -> Tuple[Optional[T], Optional[BaseException]]:
    try:
        return function(), None
    except BaseException as error:
        return None, error


class Worker:
    """A thread that runs calls one after the other. It starts with the first."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Optional[Call[Any]]] = SimpleQueue()
        self._thread: Optional[threading.Thread] = None

    def begin(self, call: Call[Any]) -> None:
        """Runs `call` after the calls begun before. Harmless if repeated."""
        if self._thread is None:
            # A daemon, so that a call that does not end cannot keep the process.
            thread = threading.Thread(
                target=_serve, args=(self._calls,), name="ballast", daemon=True
            )
            thread.start()  # if it cannot, the next call tries again
            self._thread = thread
        self._calls.put(call)

    @property
    def is_current(self) -> bool:
        """Whether this is the worker's thread."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Ends the thread after the calls that were begun."""
        self._calls.put(None)


def _serve(calls: SimpleQueue[Optional[Call[Any]]]) -> None:
    while True:
        call = calls.get()
        if call is None:
            return
        call.run()
        del call  # keeps nothing alive while it waits


def interruptible(function: Callable[[], T]) -> T:
    """Runs `function` in a thread; returns its result or raises its exception.

    If the wait is interrupted, the function continues and its result is dropped.
    """
    call = Call(function)
    threading.Thread(target=call.run, name="ballast", daemon=True).start()
    result: Any = call.wait()
    return result  # type: ignore[no-any-return]
