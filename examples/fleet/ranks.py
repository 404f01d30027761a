# SPDX-License-Identifier: Apache-2.0
"""Ranks agree on kernels before they begin: run with ATTUNE_PIN=FOLDER/site.pin torchrun --nproc-per-node 8 ranks.py"""
import torch.distributed as dist
import attune

dist.init_process_group("gloo")
digests = [None] * dist.get_world_size()
dist.all_gather_object(digests, attune.pin_digest())
assert len(set(digests)) == 1, f"ranks would run different kernels: {[digest.hex()[:8] for digest in digests]}"
dist.destroy_process_group()
