# SPDX-License-Identifier: Apache-2.0
"""tune(): measures kernels for a model or a problem, with the program `attune` that belongs to the library. The
contexts of this process then use the winners. tune_on_first_use.py does the same for the calls of a running program.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

from ..core import program as _program
from ..core.flags import flag, flag_or_none
from ..core.library import Error, STATUS_NAMES
from ..ops.context import contexts

EFFORTS = ("quick", "normal", "exhaustive")
PARTIAL = 6  # exit code: the budget ended
# Exit codes of the program, as the library's statuses.
_STATUS = {1: "invalid_argument", 2: "unsupported", 4: "driver", 5: "store"}


def _failed(shape):
    """True if a problem has no winner although the budget did not end: the search was complete, or its device failed.
    """
    return shape["winner"] is None and (shape["complete"] or shape["error"])


class TuneReport:
    """The result of tune().

    shapes: a dict per problem with problem, winner (template, config, timing; None if there is none), trials, complete,
    already_tuned, note. failures: {problem: message} of problems that cannot be tuned. complete: False if the budget
    ended first. store: the file that holds the winners. time_s: seconds. device: its name."""

    def __init__(self, answer, complete):
        self.shapes, self.store, self.complete = answer["shapes"], answer.get("store"), complete
        self.failures = {shape["problem"]: shape["note"] or "no winner" for shape in self.shapes if _failed(shape)}
        self.device, self.time_s, self.answer = answer.get("device"), answer.get("time_s"), answer

    def __repr__(self):
        won = sum(shape["winner"] is not None for shape in self.shapes)
        return (f"<attune.TuneReport: {won} of {len(self.shapes)} problems tuned in {self.time_s:.1f} s"
                f"{'' if self.complete else ', budget ended'}>")

    def __str__(self):
        lines = [repr(self)[1:-1]]
        for shape in self.shapes:
            winner = shape["winner"]
            lines.append(f"  {shape['problem']}: " +
                         (f"{winner['template']} {winner['config']}" if winner else shape["note"] or "no winner"))
        return "\n".join(lines)


def _config_of(model):
    """Returns the config of a model as a dict, from a dict, a transformers config, or a module that has one."""
    config = getattr(model, "config", model)
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    if not isinstance(config, dict):
        raise TypeError(
            f"model is of type {type(model).__name__}; must be a transformers config or model, a dict of a "
            "config.json, its path, a model's name, a problem's text or a list of problems' texts")
    return config


def _is_problem(text):
    return "=" in text and not os.path.exists(text)


def _problem_words(text):
    """Returns the program's arguments for a problem's text. Refuses texts that name files: the program would read them,
    and a text may come from a client."""
    for field, value in re.findall(r"(?:^|,)\s*(\w+)=(@[^,]*)", text):
        raise ValueError(
            f"{field} is {value}; must be a digest (only the program attune reads files, from its command line)")
    return ["--problem", text]


def workload(model, folder):
    """Returns the program's arguments for the problems to tune. Writes configs into `folder`."""
    if isinstance(model, (str, os.PathLike)):
        model = os.fspath(model)
        return _problem_words(model) if _is_problem(model) else [model]
    if isinstance(model, (list, tuple)):
        if not model or not all(isinstance(text, str) and _is_problem(text) for text in model):
            raise ValueError(
                f"model is {model!r}; must be a list of at least one problem text, such as "
                "'dtype=bf16,head_dim=128,...'")
        return [word for text in model for word in _problem_words(text)]
    path = pathlib.Path(folder) / "config.json"
    path.write_text(json.dumps(_config_of(model), default=str))
    return [str(path)]


def _numbers(name, value):
    values = value if isinstance(value, (list, tuple)) else [value]
    if not values or any(isinstance(one, bool) or not isinstance(one, int) or one < 1 for one in values):
        raise ValueError(f"{name} is {value!r}; must be a whole number above 0 or a list of them")
    return ",".join(map(str, values))


def _serving_words(serving, **choices):
    """Returns the program's options for serving. Raises ValueError for a choice that is given without it."""
    words = []
    for name, value in choices.items():
        if value is None:
            continue
        if not flag("serving", serving):
            raise ValueError(f"{name} is given without serving; must be given with serving=True")
        words += [f"--{name.replace('_', '-')}", value if isinstance(value, str) else _numbers(name, value)]
    return words + ["--serving"] if flag("serving", serving) else []


def options(effort, budget_s, target, store, seqlen=None, batch=None, dtype=None, padded=False, training=False,
            deterministic=False, serving=False, kv_lengths=None, page_size=None, max_batch_tokens=None, kv_dtype=None):
    """Returns the program's options. Raises ValueError with Python's names of arguments if a value is not valid."""
    if effort not in EFFORTS:
        raise ValueError(f"effort is {effort!r}; must be one of {', '.join(EFFORTS)}")
    if budget_s is not None and not (isinstance(budget_s, (int, float)) and not isinstance(budget_s, bool) and
                                     0 < budget_s <= 1e7):
        raise ValueError(f"budget_s is {budget_s!r}; must be seconds above 0, or None for the effort's own budget")
    words = ["--effort", effort]
    for name, value in (("budget", None if budget_s is None else f"{budget_s:.3f}s"), ("target", target),
                        ("store", store), ("dtype", dtype)):
        if value is not None:
            words += [f"--{name}", str(value)]
    for name, value in (("seqlen", seqlen), ("batch", batch)):
        if value is not None:
            words += [f"--{name}", _numbers(name, value)]
    words += _serving_words(serving, kv_lengths=kv_lengths, page_size=page_size, max_batch_tokens=max_batch_tokens,
                            kv_dtype=kv_dtype)
    return words + [
        f"--{name}" for name, given in (("padded", padded), ("training", training),
                                        ("deterministic", deterministic)) if flag(name, given)]


def start(words, progress=None):
    """Starts the program, which tunes in a separate process and session, so that Ctrl-C reaches it only through this
    process. Returns the process."""
    return subprocess.Popen([str(_program.program()), "tune", "--json", *words], env=_program.program_environment(),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=None if progress else subprocess.PIPE, text=True, start_new_session=True)


def end(process):
    """Interrupts the process like Ctrl-C, so that it keeps its measurements; kills it after 10 seconds."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def report(process, output, errors):
    """Returns the TuneReport of a process that ended. Raises attune.Error with its message if it failed and nothing was
    tuned."""
    answer = None
    if output.strip():
        answer = json.loads(output)
    shapes = (answer or {}).get("shapes", [])
    won = any(shape["winner"] for shape in shapes) and answer["stored"]
    if answer is not None and "shapes" in answer and (process.returncode in (0, PARTIAL) or won):
        return TuneReport(answer, not answer["partial"])
    status = _STATUS.get(process.returncode, "internal")
    reasons = [f"{shape['problem']}: {shape['note']}" for shape in shapes if not shape["winner"] and shape["note"]]
    told = (answer or {}).get("error", {}).get("message") or (errors or "").strip().removeprefix("attune: ")
    reason = "; ".join(reasons) or told or f"it ended with {process.returncode}"
    raise Error(STATUS_NAMES.index(status), f"attune tune: {reason}")


def reload_contexts():
    """Makes open contexts use the new winners. Existing plans do not change."""
    for context in list(contexts):
        context.reload()


def tune(model, *, seqlen=None, batch=None, dtype=None, padded=False, training=False, deterministic=False,
         serving=False, kv_lengths=None, page_size=None, max_batch_tokens=None, kv_dtype=None, effort="normal",
         budget_s=None, target="auto", store=None, progress=None):
    """Measures kernels on this machine and keeps the winners, which the contexts of this process use from then on.
    Takes minutes. Returns a TuneReport.

    model: a transformers config or a model that has one, a dict of a config.json, its path, its folder, or a name such
    as "meta-llama/Llama-3.2-1B" that is in the Hugging Face cache; then the attention of each kind of its layers is
    tuned. Or a problem's text, or a list of them.
    seqlen, batch: for a model, a number or a list; by default the program's. dtype: for a model, bf16, fp16 or fp32; by
    default its config's. padded: for encoders, batches with padding. training: their gradients too. deterministic:
    gradients as under torch.use_deterministic_algorithms(True), whose winners are kept separately.
    serving: for a model that generates tokens, what an engine calls instead of plain prefill: decoding, drafted tokens,
    chunks, packed prompts and appends. With it, batch is the requests that decode together, kv_lengths their keys (a
    number or a list), page_size the keys per page, max_batch_tokens the rows of a step with prompts, and kv_dtype the
    dtype of the caches (e4m3, e5m2, int8; by default the config's). Defaults are chosen by the device's memory.
    effort: "quick", "normal" or "exhaustive". budget_s: seconds of wall clock for everything, compiling included.
    Measurements until then are kept, and the next call continues from there.
    target: "auto", "cuda:N", "cpu" or "cpu:N". store: a file; by default $ATTUNE_STORE, otherwise the user's. progress:
    True shows a line on stderr; by default if that is a terminal.

    Do not use the device for other work meanwhile: it would disturb the timings. The report's failures are the problems
    that cannot be tuned. Raises attune.Error if none can be, and ValueError or TypeError if an argument does not fit.
    Ctrl-C keeps what was measured."""
    if store is None and os.environ.get("ATTUNE_STORE") == "":
        raise ValueError(
            "store is None and ATTUNE_STORE is empty, so the winners cannot be kept; must be a file")
    progress = flag_or_none("progress", progress)
    if progress is None:
        progress = sys.stderr is not None and sys.stderr.isatty()
    words = options(effort, budget_s, target, store, seqlen, batch, dtype, padded, training, deterministic, serving,
                    kv_lengths, page_size, max_batch_tokens, kv_dtype)
    with tempfile.TemporaryDirectory(prefix="attune-") as folder:
        process = start([*workload(model, folder), *words], progress)
        try:
            output, errors = process.communicate()
        finally:
            end(process)
            reload_contexts()  # winners count, even if the rest failed
    return report(process, output, errors)
