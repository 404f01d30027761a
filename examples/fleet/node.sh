#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One shard a GPU of this node: node.sh FOLDER NUM_GPUS WORKLOAD...   then join.sh FOLDER
folder=$1 gpus=$2; shift 2; mkdir -p -m 700 "$folder"
for gpu in $(seq 0 $((gpus - 1))); do
  CUDA_VISIBLE_DEVICES=$gpu attune tune "$@" --shard "$gpu/$gpus" --store "$folder/$gpu.db" &
done
wait
