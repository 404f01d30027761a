#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs test scripts in forks of one process that has imported PyTorch, since the import takes seconds of each test.

`warm_start.py --serve` is that process; tests/run.sh starts and ends it. `warm_start.py SCRIPT [ARGUMENT...]` runs a
script in a fork of the process that serves the current folder, with this environment, folder and output. Its exit
status is the script's. Without such a process it runs the script itself.
"""
import json
import os
import signal
import socket
import struct
import sys

SOCKET = "warm_start.socket"  # in the current folder: a socket's path may have 107 bytes
LENGTH = struct.Struct("!i")
MODULES = ("numpy", "torch")  # what the process imports


def read(connection, size):
    """Returns exactly `size` bytes, or fewer if the other side has closed."""
    data = b""
    while len(data) < size and (part := connection.recv(size - len(data))):
        data += part
    return data


def ask(words):
    """Has the serving process run the words. Returns the exit status, minus the signal that ended it, or None if no
    process serves this folder."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(SOCKET)
    except OSError:
        return None
    job = json.dumps({"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}).encode()
    socket.send_fds(connection, [LENGTH.pack(len(job))], [0, 1, 2])
    connection.sendall(job)
    answer = read(connection, LENGTH.size)
    if len(answer) < LENGTH.size:
        sys.exit(f"the process that serves {os.path.abspath(SOCKET)} ended while it ran {words[0]}")
    return LENGTH.unpack(answer)[0]


def end_as(status):
    """Ends this process as the script ended."""
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -status)
    sys.exit(status)


class Server:
    """Forks for each connection. run() returns in the forks alone."""

    def __init__(self):
        import selectors
        self.selector, self.jobs = selectors.DefaultSelector(), {}
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(SOCKET)
        self.listening.listen(64)
        self.selector.register(self.listening, selectors.EVENT_READ, self.accept)

    def run(self):
        """Serves until a signal ends the process. Returns the job in a fork."""
        while True:
            for key, _ in self.selector.select():
                # An earlier event may have closed this one's file.
                if key.fd in self.selector.get_map() and (job := key.data()) is not None:
                    return job

    def accept(self):
        import selectors
        connection = self.listening.accept()[0]
        length, files, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
        job = read(connection, LENGTH.unpack(length)[0]) if len(length) == LENGTH.size else b""
        if len(files) < 3 or not job:
            connection.close()
            return None
        child = os.fork()
        if child == 0:
            self.leave(connection, files)
            return json.loads(job)
        for file in files:
            os.close(file)
        handle = os.pidfd_open(child)
        self.jobs[child] = connection, handle
        self.selector.register(handle, selectors.EVENT_READ, lambda: self.ended(child))
        self.selector.register(connection, selectors.EVENT_READ, lambda: self.left(child))
        return None

    def leave(self, connection, files):
        """Makes a fork independent: own session, the asker's input and output, none of the server's files."""
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        for other, handle in self.jobs.values():
            other.close()
            os.close(handle)
        connection.close()
        self.listening.close()
        self.selector.close()

    def ended(self, child):
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection, handle = self.jobs.pop(child)
        self.selector.unregister(handle)
        if connection in self.selector.get_map():
            self.selector.unregister(connection)
        os.close(handle)
        try:
            connection.sendall(LENGTH.pack(status))
        except OSError:  # the asker has gone
            pass
        connection.close()

    def left(self, child):
        """Ends a job whose asker was killed: CTest kills a test that takes too long."""
        try:
            os.killpg(child, signal.SIGKILL)
        except OSError:  # it has ended, and ended() comes next
            pass
        self.selector.unregister(self.jobs[child][0])


def start_script(job, paths):
    """Makes this process look like `python SCRIPT ARGUMENT...`. Returns the script's code and its module's names."""
    import importlib
    import types
    script = job["words"][0]
    os.chdir(job["folder"])
    environment = job["environment"]
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.argv = job["words"]
    added = [os.path.abspath(path) for path in environment.get("PYTHONPATH", "").split(":") if path]
    sys.path[:] = [os.path.dirname(os.path.realpath(script)), *added, *paths]
    importlib.invalidate_caches()
    module = types.ModuleType("__main__")
    module.__file__, module.__builtins__, module.__spec__ = script, __builtins__, None
    module.server = sys.modules["__main__"]  # whose code still runs
    sys.modules["__main__"] = module
    with open(script, "rb") as file:
        return compile(file.read(), script, "exec"), module.__dict__


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        import gc
        import importlib
        for name in MODULES:
            try:
                importlib.import_module(name)
            except ImportError:
                pass  # its tests skip
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)  # many searches while large packages are imported take seconds
        exec(*start_script(Server().run(), sys.path[1:]))
    else:
        if (status := ask(sys.argv[1:])) is not None:
            end_as(status)
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
