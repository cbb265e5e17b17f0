"""A file system that shows the files of a folder, and stops answering for some of them
when told to.

It speaks the kernel's FUSE protocol (linux/fuse.h) over /dev/fuse. Read-only, and
without folders inside the folder.
"""

import ctypes
import errno
import os
import stat
import struct
import threading

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV = 1, 2, 4
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_MNT_DETACH = 2

_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _RELEASE = 1, 2, 3, 14, 15, 18
_FLUSH, _INIT, _OPENDIR, _READDIR, _RELEASEDIR = 25, 26, 27, 28, 29
_INTERRUPT, _DESTROY, _BATCH_FORGET = 36, 38, 42
_ASYNC_READ = 1
_UNANSWERED = (_FORGET, _INTERRUPT, _BATCH_FORGET)
_ROOT = 1
_VALID_S = 3600  # the kernel need not ask again for names and attributes
_LARGEST = 1 << 17


def _check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def own_mounts():
    """Gives this process a mount namespace of its own. OSError where that is refused."""
    _check(_LIBC.unshare(_CLONE_NEWNS), "unshare")
    _check(_LIBC.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount /")


def _attributes(node, info):
    return struct.pack(
        "<6Q10I", node, info.st_size, info.st_blocks, int(info.st_atime),
        info.st_mtime_ns // 10**9, info.st_ctime_ns // 10**9, 0,
        info.st_mtime_ns % 10**9, info.st_ctime_ns % 10**9, info.st_mode,
        info.st_nlink, info.st_uid, info.st_gid, 0, 4096, 0,
    )  # fmt: skip


class Mirror:
    """The files that are in `folder` now, mounted over it. OSError where the kernel
    has no FUSE, or refuses to mount one."""

    def __init__(self, folder):
        self._folder = folder
        self._under = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._nodes = {_ROOT: "."}
        self._numbers = {}
        for number, name in enumerate(sorted(os.listdir(folder)), _ROOT + 1):
            self._nodes[number] = name
            self._numbers[name] = number
        self._files = {
            number: os.open(name, os.O_RDONLY, dir_fd=self._under)
            for number, name in self._nodes.items()
        }
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._stalled = set()  # nodes
        self._only_reads = False
        self._held = []  # requests
        self._device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other"
        _check(
            _LIBC.mount(b"mirror", folder.encode(), b"fuse",
                        _MS_RDONLY | _MS_NOSUID | _MS_NODEV, options.encode()),
            "mount fuse",
        )  # fmt: skip
        threading.Thread(target=self._serve, daemon=True).start()

    def stall(self, *names, only_reads=False):
        """Answers nothing that concerns these files from now on. With only_reads all
        else is answered: whoever waits for something else cannot even be killed."""
        with self._lock:
            self._stalled = {self._numbers[name] for name in names}
            self._only_reads = only_reads

    def heal(self):
        """Answers what has waited, and all that comes."""
        with self._lock:
            held, self._held = self._held, []
            self._stalled = set()
        for request in held:
            self._answer(request)

    def close(self):
        self.heal()
        _check(_LIBC.umount2(self._folder.encode(), _MNT_DETACH), "umount")

    def _serve(self):
        while True:
            try:
                request = os.read(self._device, _LARGEST + 8192)
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno == errno.ENOENT:  # the request was withdrawn
                    continue
                return  # ENODEV: unmounted
            _, opcode, _, node = struct.unpack_from("<2I2Q", request)
            with self._lock:
                if node in self._stalled and (opcode == _READ or not self._only_reads):
                    self._held.append(request)
                    continue
            self._answer(request)

    def _answer(self, request):
        _, opcode, unique, node = struct.unpack_from("<2I2Q", request)
        if opcode in _UNANSWERED:
            return
        try:
            answer, error = self._reply(opcode, node, request[40:]), 0
        except OSError as found:
            answer, error = b"", -found.errno
        head = struct.pack("<IiQ", 16 + len(answer), error, unique)
        try:
            os.write(self._device, head + answer)
        except OSError:
            pass  # the process that asked has ended

    def _reply(self, opcode, node, body):
        if opcode == _INIT:
            # No reading ahead: each page is asked for when it is touched. As libfuse
            # does, reads are asynchronous: a thread that waits for one can be killed.
            return struct.pack(
                "<4I2H2I2H8I", 7, 31, 0, _ASYNC_READ, 64, 48, 4096, 1, 32, 0, *[0] * 8
            )
        if opcode == _LOOKUP:
            name = body.rstrip(b"\0").decode()
            if name not in self._numbers:
                raise OSError(errno.ENOENT, name)
            found = self._numbers[name]
            info = os.fstat(self._files[found])
            entry = struct.pack("<4Q2I", found, 0, _VALID_S, _VALID_S, 0, 0)
            return entry + _attributes(found, info)
        if opcode == _GETATTR:
            info = os.fstat(self._files[node])
            return struct.pack("<Q2I", _VALID_S, 0, 0) + _attributes(node, info)
        if opcode in (_OPEN, _OPENDIR):
            return struct.pack("<QIi", 0, 0, 0)
        if opcode == _READ:
            _, offset, size = struct.unpack_from("<2QI", body)
            return os.pread(self._files[node], size, offset)
        if opcode == _READDIR:
            _, offset, size = struct.unpack_from("<2QI", body)
            return self._entries(offset, size)
        if opcode in (_RELEASE, _RELEASEDIR, _FLUSH, _DESTROY):
            return b""
        raise OSError(errno.ENOSYS, "not implemented")

    def _entries(self, offset, size):
        found = b""
        for number, name in enumerate(sorted(self._numbers), 1):
            if number <= offset:
                continue
            text = name.encode()
            head = self._numbers[name], number, len(text), stat.S_IFREG >> 12
            entry = struct.pack("<2Q2I", *head) + text + bytes(-len(text) % 8)
            if len(found) + len(entry) > size:
                break
            found += entry
        return found
