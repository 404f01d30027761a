# SPDX-License-Identifier: Apache-2.0
"""Folders in the interpreter's packages that hold NVRTC: PyTorch's wheels for CUDA and attune[cuda12], attune[cuda13]
bring it. Used by ops/context.py and program.py."""
import pathlib
import sys

# NVIDIA's wheels for CUDA 13 and later have one folder for all libraries; those for CUDA 12 have one per library.
PLACES = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")
PACKAGES = ("site-packages", "dist-packages")


def nvrtc_folders():
    """Returns absolute paths of the folders that exist in the interpreter's packages, CUDA 13 before 12."""
    packages = [
        pathlib.Path(entry) for entry in dict.fromkeys(sys.path)
        if entry.startswith("/") and entry.rstrip("/").endswith(PACKAGES)]
    folders = [folder / place for place in PLACES for folder in packages]
    return [str(folder) for folder in folders if folder.is_dir()]
