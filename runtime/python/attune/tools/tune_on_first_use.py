# SPDX-License-Identifier: Apache-2.0
"""tune_on_first_use(): tunes the problems of a running program in another process, and gives it the winners between its
steps. Off until it is called. Built on tune.py; ops/context.py reports each new plan to it."""
import atexit
import hashlib
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time

from ..core.flags import flag
from ..core.library import Error, module
from ..core.torch_state import untraced
from ..ops import context as _context
from . import tune as _tune

UNTUNED = ("nearest", "default_config")  # rungs that a tune would improve
PROGRAMS = ("score_mod", "mask_mod")
SMALLEST_BUDGET_S = 1


def _capturing():
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized(
    ) and torch.cuda.is_current_stream_capturing()


class FirstUse:
    """The result of tune_on_first_use(). As a context manager it stops at its end.

    waiting, done: problems' texts. failures: {problem: message}. spent_s: seconds of tuning so far. Methods: step(),
    attach(), wait(), stop()."""

    def __init__(self, budget_s, effort, between_steps):
        self.budget_s, self.effort, self.between_steps = budget_s, effort, between_steps
        self.waiting, self.done, self.failures, self.spent_s = [], [], {}, 0.0
        self._jobs, self._seen, self._won = [], set(), False
        # In a problem's text, a comma ends the name of a program's file.
        self._folder = tempfile.mkdtemp(prefix="attune-", dir="/tmp" if "," in tempfile.gettempdir() else None)
        self._changed = threading.Condition()
        self._process, self._stopped, self._pid, self._thread = None, False, os.getpid(), None
        atexit.register(self.stop)

    def __repr__(self):
        return (f"<attune.FirstUse: {len(self.done)} tuned, {len(self.waiting)} waiting, "
                f"{self.spent_s:.1f} of {self.budget_s:.1f} s>")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def notice(self, context, plan, programs):
        """Notes a new plan. Called on any thread."""
        fields = [field for field, _ in programs]
        store = os.environ.get("ATTUNE_STORE") if context.store is None else context.store
        if os.getpid() != self._pid or plan.rung not in UNTUNED or store == "" or any(field not in PROGRAMS
                                                                                      for field in fields):
            return
        text = plan._text + "".join(f",{field}=@{self._program_file(handle)}" for field, handle in programs)
        target = context.target if context.target.startswith("cpu") else plan.target
        job = (text, target, context.store)
        with self._changed:
            if job in self._seen or self._stopped:
                return
            self._seen.add(job)
            self._jobs.append(job)
            self.waiting.append(text)
            if not self.between_steps and self._thread is None:
                self._thread = threading.Thread(target=self._work, name="attune-tune", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _program_file(self, handle):
        text = module.program_text(handle).encode()
        path = pathlib.Path(self._folder) / f"program_{hashlib.sha256(text).hexdigest()}.txt"
        path.write_bytes(text)
        return path

    def _left(self):
        return self.budget_s - self.spent_s

    def _work(self):
        while True:
            with self._changed:
                while not self._jobs and not self._stopped:
                    self._changed.wait()
                if self._stopped or self._left() < SMALLEST_BUDGET_S:
                    return
            self._tune_one()

    def _tune_one(self):
        """Tunes the problem that waits longest. Its time counts even if it failed, without the time that it waited for
        other tunes."""
        with self._changed:
            if self._stopped or not self._jobs:
                return
            text, target, store = self._jobs[0]
            begun = time.monotonic()
            words = ["--problem", text, *_tune.options(self.effort, self._left(), target, store)]
            try:
                self._process = process = _tune.start(words)
            except OSError as error:
                process, failure, spent_s = None, str(error), 0.0
        if process is not None:
            output, errors = process.communicate()
            failure, spent_s = self._outcome(process, output, errors, time.monotonic() - begun)
        with self._changed:
            self._process = None
            self._jobs.pop(0)
            self.waiting.pop(0)
            self.spent_s += spent_s
            if failure is None:
                self.done.append(text)
                self._won = True
            elif not self._stopped:
                self.failures[text] = failure

    @staticmethod
    def _outcome(process, output, errors, seconds):
        """Returns (the reason why there is no winner, or None; the seconds to count)."""
        try:
            report = _tune.report(process, output, errors)
        except (Error, ValueError) as error:
            return str(error), seconds
        seconds = min(seconds, report.time_s or seconds)
        if any(shape["winner"] for shape in report.shapes):
            return None, seconds
        return "; ".join(shape["note"]
                         for shape in report.shapes if shape["note"]) or "it ended without a winner", seconds

    @untraced
    def step(self):
        """Gives the contexts of this process the winners so far; call it between steps. With between_steps=True it
        first tunes one waiting problem.

        Returns True if plans may have changed. Captured CUDA graphs do not change; call attune.prepare() again before a
        new capture. Inside a capture it does nothing and returns False."""
        if self._stopped or os.getpid() != self._pid or _capturing():
            return False
        if self.between_steps and self._jobs and self._left() >= SMALLEST_BUDGET_S:
            self._tune_one()
        with self._changed:
            won, self._won = self._won, False
        if won:
            _tune.reload_contexts()
        return won

    def attach(self, module):
        """Makes a torch module call step() before each forward. Returns the hook's handle, whose remove() ends that."""
        def before(*_):
            self.step()  # returns nothing: a hook's result would replace the module's arguments

        return module.register_forward_pre_hook(before)

    def wait(self, timeout_s=None):
        """Waits until all problems are tuned, or the budget is spent. timeout_s: seconds, None for no limit. Returns
        False if the timeout came first."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while self._thread is not None and self._thread.is_alive() and self.waiting and (end is None or
                                                                                         time.monotonic() < end):
            time.sleep(0.05)
        return not self.waiting or self._left() < SMALLEST_BUDGET_S

    def stop(self):
        """Ends a running measurement; earlier measurements are kept. Later calls do nothing. Called when Python ends.
        """
        if self._stopped or os.getpid() != self._pid:
            return
        with self._changed:
            self._stopped = True
            process = self._process
            self._changed.notify_all()
        _context.plan_made = None
        atexit.unregister(self.stop)
        if process is not None and process.poll() is None:
            process.terminate()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=10)
            if self._thread.is_alive() and process is not None:
                process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def tune_on_first_use(budget_s=120, effort="quick", between_steps=False):
    """Tunes, in another process, each problem that this process calls from now on and that is not tuned for this
    device. Each problem is tuned once. Returns a FirstUse.

    Call its step() between steps, or attach(model). Winners come into use then, never during a step or inside a CUDA
    graph's capture.
    budget_s: seconds of tuning in total. effort: "quick", "normal" or "exhaustive". between_steps: True tunes only
    inside step(), which then takes seconds, while nothing else uses the device. By default a problem is tuned as soon
    as it is seen, while the program runs. Candidates are timed in turns, so the choice is fair, but both get slower.

    Problems of contexts without a store, and those with a block_map, are left out. stop() ends it, as does the end of
    Python or of a with block. A process that forks from this one tunes nothing.
    Raises ValueError or TypeError if an argument does not fit, and RuntimeError if it is on already."""
    between_steps = flag("between_steps", between_steps)
    if budget_s is None:
        raise ValueError("budget_s is None; must be seconds above 0")
    _tune.options(effort, budget_s, None, None)
    if _context.plan_made is not None:
        raise RuntimeError("attune.tune_on_first_use() is on already; call stop() of its result first")
    first_use = FirstUse(float(budget_s), effort, between_steps)
    _context.plan_made = first_use.notice
    return first_use
