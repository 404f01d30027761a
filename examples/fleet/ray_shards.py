# SPDX-License-Identifier: Apache-2.0
"""One shard a GPU of a Ray cluster: ray_shards.py FOLDER SHARDS GPUS_A_SHARD WORKLOAD...   then join.sh FOLDER, a folder that all share."""
import subprocess
import sys
import ray

folder, shards, gpus, *workload = sys.argv[1:]
tune = ray.remote(num_gpus=float(gpus))(lambda i: subprocess.run(
    ["attune", "tune", *workload, "--shard", f"{i}/{shards}", "--store", f"{folder}/{i}.db"], check=True).returncode)
ray.get([tune.remote(i) for i in range(int(shards))])
