# SPDX-License-Identifier: Apache-2.0
"""why(): reports which kernel a call of attention() runs, which rung of the ladder chose it, and why other kernels were
not chosen."""
import os

from ..core.library import Error
from ..core.problem import problem_text
from ..core.tensors import check_device
from ..score.scores import scores_of
from ..ops.attention import DEFAULTS, OF_PROBLEM, attention
from ..ops.context import context_of
from ..ops.prepare import prepare
from ..ops.public import with_keywords

TUNED = ("pinned", "exact", "bucket", "nearest")


class Why:
    """The result of why(); str() of it is the answer as text.

    problem: the problem's text. plan: the Plan, or None if there is none; `error` is then the library's message.
    rung, kernel_template, config, arch, expected_us: the plan's, or None. tuned: True if the config was measured on
    this device, for this or another shape. explanation: lines of Plan.explain(). reasons: {template: the reason why it
    does not serve, or None if it does}."""

    def __init__(self, problem, plan, error, reasons, programs=(), context=None):
        self.problem, self.plan, self.error, self.reasons, self._programs = problem, plan, error, reasons, [
            field for field, _ in programs]
        self._context = context
        for name in ("rung", "kernel_template", "config", "arch", "expected_us"):
            setattr(self, name, getattr(plan, name, None))
        self.tuned = self.rung in TUNED
        self.explanation = [] if plan is None else plan.explain().splitlines()

    def __repr__(self):
        return f"<attune.Why {self.problem}: {self.error or f'{self.kernel_template}, {self.rung}'}>"

    def __str__(self):
        lines = self.explanation or [f"problem    {self.problem}", "kernel     none", f"reason     {self.error}"]
        told = "\n".join(lines)
        others = [
            f"{name}: {reason or 'serves this problem'}" for name, reason in self.reasons.items()
            if name != self.kernel_template and f"{name}:" not in told and not (reason or "").startswith("op is ")]
        return "\n".join([
            *lines, *(f"{'others' if i == 0 else '':10} {text}" for i, text in enumerate(others)), *self.advice()])

    def advice(self):
        """Returns lines on how to get a better kernel, if that is possible."""
        if self.plan is None or self.rung in ("pinned",
                                              "exact") or "block_map" in self._programs or (self._programs and
                                                                                            self.rung == "bucket"):
            return []
        if self.rung == "reference":
            return [f"{'advice':10} tuning changes nothing: only the reference kernel serves this here"]
        target, store = (None, None) if self._context is None else (self._context.target, self._context.store)
        if store == "" or (store is None and os.environ.get("ATTUNE_STORE") == ""):
            return [f"{'advice':10} give the context a store: without one no tuned kernels are found"]
        if self._programs:  # the problem's text does not hold them
            return [
                f"{'advice':10} attune.tune_on_first_use() measures the kernels for calls with this "
                f"{' and '.join(self._programs)}"]
        words = [
            repr(self.problem)
        ] + [f"target={target!r}"] * (target not in (None, "auto")) + [f"store={store!r}"] * (store is not None)
        return [f"{'advice':10} attune.tune({', '.join(words)}) measures the kernels for this very shape"]


@with_keywords(DEFAULTS)
def why(q, k, v, mask=None, window=None, scale=None, out=None, return_lse=False, **keywords):
    """Returns a Why: which kernel attention() runs for these arguments, which rung of the ladder chose its config, and
    why other kernels were not chosen. str() of it is the answer as text.

    Arguments are those of attention(). Runs nothing, but compiles and loads the kernel if no store has it. If there is
    no kernel (policy strict, no_jit, or no template serves) the Why says so. Arguments that do not fit raise as in
    attention()."""
    keywords = dict(DEFAULTS, mask=mask, window=window, scale=scale, out=out, return_lse=return_lse, **keywords)
    plan, error = None, None
    try:
        plan = prepare(attention, q, k, v, **keywords)
    except Error as failed:
        error = str(failed)
    context = context_of(keywords["context"], check_device("q", q))
    scores = scores_of({**keywords, "seed": 0})
    problem = plan._text if plan is not None else problem_text(q, k, v, **{
        name: keywords[name] for name in OF_PROBLEM}) + ("" if scores is None else scores.text)
    programs = () if scores is None else scores.programs()
    return Why(problem, plan, error, _reasons(context, problem, programs), programs, context)


def _reasons(context, problem, programs):
    """Returns the reasons of all templates, also if none serves: the error then has the same lines."""
    try:
        lines = context.check(problem, programs)
    except Error as error:
        lines = str(error)
    pairs = [line.partition(": ") for line in lines.splitlines()]
    return {name: None if reason == "serves this problem" else reason for name, _, reason in pairs if reason}
