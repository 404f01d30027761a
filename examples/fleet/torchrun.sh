#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tunes one shard per GPU, without a process group: torchrun.sh FOLDER GPUS_A_NODE WORKLOAD...   then join.sh FOLDER
folder=$1 gpus=$2; shift 2; mkdir -p -m 700 "$folder"
torchrun --nproc-per-node "$gpus" --no-python bash -c 'CUDA_VISIBLE_DEVICES=$LOCAL_RANK exec \
  attune tune "${@:2}" --shard env --store "$1/$RANK.db"' shard "$folder" "$@"
