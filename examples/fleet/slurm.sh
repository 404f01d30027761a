#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tunes one shard per task of an array: sbatch --array=0-15 --gpus=1 slurm.sh FOLDER WORKLOAD...   then join.sh FOLDER
folder=$1; shift; mkdir -p -m 700 "$folder"
exec attune tune "$@" --shard env --store "$folder/$SLURM_ARRAY_TASK_ID.db"
