"""The inside of a helper in Python: its frames, its box and its limits of time.

The server starts it (python_helper.h) and talks to it in frames, as helper_program.h has
them: kind, a zero, the number of bytes, the bytes.
"""

import ctypes
import os
import resource
import signal
import struct

SOCKET = 3
FRAME = struct.Struct("=IIQ")
CLOSE_BOX = 1
DONE, REFUSED = 0, 1
MOST_REASON = 2000
PR_SET_NO_NEW_PRIVS = 38
SET_MODE_FILTER, ALL_THREADS = 1, 1
SECCOMP = {"x86_64": 317, "aarch64": 277}


class TooLong(BaseException):
    """A request took more than its limit of processor time."""


def read(count):
    body = bytearray(count)
    left = memoryview(body)
    while left:
        size = os.readv(SOCKET, (left,))
        if size == 0:
            os._exit(0)
        left = left[size:]
    return body


def read_request():
    """The kind and the bytes of the next request that is not the box's."""
    while True:
        kind, _, count = FRAME.unpack(read(FRAME.size))
        request = read(count)
        if kind != CLOSE_BOX:
            return kind, request
        close_box(request)
        answer(DONE)


def answer(kind, *pieces):
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    head = FRAME.pack(kind, 0, len(body))
    sent = os.writev(SOCKET, (head, body))
    left = (
        memoryview(body)[sent - len(head) :]
        if sent >= len(head)
        else memoryview(head[sent:] + body)
    )
    while left:
        left = left[os.write(SOCKET, left) :]


def to_reason(reason):
    return reason[:MOST_REASON].encode(errors="replace")


def close_box(request):
    memory, process = struct.unpack_from("=QQ", request)
    code = bytes(request[16:])
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with open("/proc/self/statm") as sizes:
        memory += int(sizes.read().split()[0]) * resource.getpagesize()
    os.closerange(5, 1 << 16)
    null = os.open("/dev/null", os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if not code:
        return
    # The filter allows abort() by the number of the process that it is made for.
    if process != os.getpid():
        os._exit(1)
    room = ctypes.create_string_buffer(code, len(code))
    program = ctypes.c_char_p(struct.pack("@HP", len(code) // 8, ctypes.addressof(room)))
    if libc.syscall(SECCOMP[os.uname().machine], SET_MODE_FILTER, ALL_THREADS, program) != 0:
        os._exit(1)


def start_timer(seconds):
    """Raises TooLong after so much processor time; ends the process where no handler runs."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_VIRTUAL, 1.5 * seconds + 0.5)


def stop_timer():
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _on_timer(number, frame):
    raise TooLong()


signal.signal(signal.SIGPROF, _on_timer)
