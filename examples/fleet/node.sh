#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tunes one shard per GPU of this node: node.sh FOLDER NUM_GPUS WORKLOAD...   then join.sh FOLDER
# Ends with the largest exit code of its shards.
folder=$1 gpus=$2; shift 2; mkdir -p -m 700 "$folder"
((gpus > 0)) || { echo "node.sh: NUM_GPUS is $gpus; must be at least 1" >&2; exit 1; }
shards=() worst=0
for gpu in $(seq 0 $((gpus - 1))); do
  CUDA_VISIBLE_DEVICES=$gpu attune tune "$@" --shard "$gpu/$gpus" --store "$folder/$gpu.db" &
  shards+=($!)
done
for shard in "${shards[@]}"; do
  wait "$shard" || { code=$?; ((code > worst)) && worst=$code; }
done
exit $worst
