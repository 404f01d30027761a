# SPDX-License-Identifier: Apache-2.0
"""Tunes one shard per task of a Dask cluster. FOLDER is shared by all workers.
dask_shards.py FOLDER SHARDS ADDRESS WORKLOAD...   then join.sh FOLDER
Workers started with `dask worker --nthreads 1` take one shard at a time."""
import subprocess
import sys
from dask.distributed import Client

folder, shards, address, *workload = sys.argv[1:]
client = Client(address)
client.gather(
    client.map(
        lambda i: subprocess.run([
            "attune", "tune", *workload, "--shard", f"{i}/{shards}", "--store", f"{folder}/{i}.db"], check=True).
        returncode, range(int(shards))))
