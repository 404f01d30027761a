# SPDX-License-Identifier: Apache-2.0
"""Checks that all ranks would run the same kernels. Run it with
ATTUNE_PIN=FOLDER/site.pin torchrun --nproc-per-node 8 ranks.py"""
import torch
import torch.distributed as dist
import attune

dist.init_process_group("gloo")
mine = torch.tensor(list(attune.pin_digest()),
                    dtype=torch.uint8)  # 32 bytes; gathering a tensor needs no NumPy
digests = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
dist.all_gather(digests, mine)
assert all(
    torch.equal(mine, one)
    for one in digests), f"ranks would run different kernels: {[bytes(one.tolist()).hex()[:8] for one in digests]}"
dist.destroy_process_group()
