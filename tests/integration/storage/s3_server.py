"""A real S3 server over a folder: `rclone serve s3`, which checks signatures.

deploy/setup.sh --tests unpacks rclone; RCLONE_PATH names another folder that
holds it.
"""

import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile

KEYS = {"AWS_ACCESS_KEY_ID": "KEYOFTESTS", "AWS_SECRET_ACCESS_KEY": "hidden/SECRET+1"}


def rclone():
    """Path of the program, or None."""
    home = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    default = os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".local/share/ballast/rclone")
    for folder in (
        os.environ.get("RCLONE_PATH"),
        os.path.join(home, ".local/share/ballast/rclone"),
        default,
    ):
        if folder and os.access(os.path.join(folder, "rclone"), os.X_OK):
            return os.path.join(folder, "rclone")
    return None


def skip_without_rclone():
    """Ends the process visibly where there is no rclone."""
    if rclone() is None:
        print("SKIPPED: no rclone; deploy/setup.sh --tests unpacks it")
        sys.exit(0)


class S3Server:
    """Serves the folders within `root` as buckets. Keeps the hash of each file, its ETag,
    until its size or time changes; rclone alone reads the whole file at each request."""

    def __init__(self, root, *more):
        """`more`: options of rclone, instead of seeing at once what a test writes."""
        self._root = f":hasher,remote='{root}',hashes=md5,auto_size=1G,max_age=off:"
        self._hashes = tempfile.TemporaryDirectory(prefix="rclone.")
        self._more = more or ("--dir-cache-time", "0s")
        self._address = "127.0.0.1:0"
        self._process = None

    @property
    def address(self):
        return self._address

    @property
    def endpoint(self):
        return "http://" + self._address

    def start(self):
        """The same address at every start after the first."""
        self._process = subprocess.Popen(
            [
                rclone(), "serve", "s3", "--addr", self._address,
                "--auth-key", ",".join(KEYS.values()),
                *self._more, "--vfs-read-wait", "0s", "--config", "/dev/null",
                "--cache-dir", self._hashes.name, self._root,
            ],
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        for line in self._process.stderr:
            found = re.search(r"server on \[?http://([0-9.:]+)", line)
            if found:
                self._address = found.group(1)
                return self
        raise AssertionError("rclone does not serve S3")

    def stop(self, how=signal.SIGKILL):
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.wait()
        self._process.stderr.close()
        self._process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
