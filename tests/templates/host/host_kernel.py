# SPDX-License-Identifier: Apache-2.0
"""Compiles a rendered CUDA kernel for the host and runs it with a program that compares its results.

`attune emit` writes a kernel as one file, each part under its file's label. Parts of cuda/ptx are left out here: the
programs have their functions for the host."""
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
LABEL = re.compile(r"^// ---- (.+?)(, continued)?$")
SHARED = re.compile(r"(\d+) bytes of dynamic shared memory")


def host_text(rendered):
    """Returns a rendered source without its parts of cuda/ptx."""
    kept, takes = [], True
    for line in rendered.split("\n"):
        label = LABEL.match(line)
        if label:
            takes = not label[1].startswith(("cuda/ptx/", "shared/attention_enums.h"))
        if takes or line.startswith(("namespace ", "}  // namespace ")):
            kept.append(line)
    text = "\n".join(kept)
    return text.replace("extern __shared__ __align__(1024) char shared[];",
                        "char* const shared = reinterpret_cast<char*>(shared_memory.data());")


def run_on_host(rendered, program, prefix, values, compiler, library):
    """Runs `program`, a source below tests/templates, with the kernel `rendered`. values: its macros, each of which
    begins with `prefix`. Returns the completed process."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "rendered.inc").write_text(host_text(rendered))
        values = {"KERNEL": f'"{folder}/rendered.inc"', "SHARED": SHARED.search(rendered)[1], **values}
        folders = (f"{ROOT}/tests/templates/host", f"{ROOT}", f"{ROOT}/templates")
        # Fibers leave their stacks by longjmp, which _FORTIFY_SOURCE forbids.
        subprocess.run([compiler, "-std=c++20", "-O1", "-w", "-U_FORTIFY_SOURCE", *(f"-I{name}" for name in folders),
                        *(f"-D{prefix}_{name}={value}" for name, value in values.items()),
                        f"{ROOT}/tests/templates/{program}", library, "-o", f"{folder}/kernel"], check=True)
        return subprocess.run([f"{folder}/kernel"], capture_output=True, text=True, check=False)
