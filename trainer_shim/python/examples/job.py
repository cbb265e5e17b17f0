"""A loader server over generated receipts, for the examples. Standard library only."""

import contextlib
import os
import subprocess
import textwrap


class Job:
    """A folder with a generated dataset, and the servers over it."""

    def __init__(self, folder, program, samples, seed=1, preset="receipts"):
        self.folder = folder
        self.program = program
        if not os.path.exists(os.path.join(folder, "ballast.yaml")):
            self._run("make-corpus", "--out", folder, "--samples", str(samples),
                      "--preset", preset, "--seed", str(seed))  # fmt: skip

    def _run(self, *arguments):
        subprocess.run([self.program, *arguments], check=True, stdout=subprocess.DEVNULL)

    def configure(self, name, text):
        """Writes a configuration, indexes the dataset for it, and returns its path."""
        path = os.path.join(self.folder, name + ".yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        self._run("index", "--config", path)
        return path

    @contextlib.contextmanager
    def serve(self, config):
        """Runs a server until the end of the block; yields its address."""
        name = os.path.splitext(os.path.basename(config))[0]
        # A socket's path has at most 107 bytes.
        address = "unix:/tmp/ballast-%d-%s.sock" % (os.getpid(), name)
        command = [self.program, "serve", "--config", config, "--listen", address]
        with open(os.path.join(self.folder, name + ".log"), "w", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        try:
            line = process.stdout.readline().decode()
            if not line.startswith("ready"):
                with open(log.name, encoding="utf-8") as file:
                    raise RuntimeError(file.read())
            yield address
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
            with contextlib.suppress(FileNotFoundError):
                os.remove(address[len("unix:") :])
