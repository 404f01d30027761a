# SPDX-License-Identifier: Apache-2.0
"""Tunes one shard per GPU of a Ray cluster. FOLDER is shared by all nodes.
ray_shards.py FOLDER SHARDS GPUS_A_SHARD WORKLOAD...   then join.sh FOLDER"""
import subprocess
import sys
import ray

folder, shards, gpus, *workload = sys.argv[1:]
tune = ray.remote(num_gpus=float(gpus))(lambda i: subprocess.run(
    ["attune", "tune", *workload, "--shard", f"{i}/{shards}", "--store", f"{folder}/{i}.db"], check=True).returncode)
ray.get([tune.remote(i) for i in range(int(shards))])
