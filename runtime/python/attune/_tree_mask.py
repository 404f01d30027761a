# SPDX-License-Identifier: Apache-2.0
"""tree_mask(): who sees whom among drafted tokens that are a tree, for attention_kvcache(). Speculative decoding verifies such trees in one call; see
examples/guide/serving.md."""
from . import _tensors as tensors


def tree_mask(tree, kv_lengths):
    """A mask_mod for attention_kvcache() of drafted tokens that are a tree: the last rows of a request are its nodes, and tree[b, i, j] says whether node i
    sees node j (itself and those above it); all see the keys ahead of the nodes.

    tree: bool [batch, rows, rows]; kv_lengths: int32 [batch], as of attention_kvcache(), the nodes counted. Both are read on the device: of a captured graph
    the tree may change. Give neither is_causal nor packed rows beside it: every request has `rows` of them."""
    if len(tree.shape) != 3 or tree.shape[1] != tree.shape[2] or tensors.dtype_text(tree.dtype) != "bool":
        raise ValueError(
            f"tree is {tensors.dtype_text(tree.dtype)} of shape {tuple(tree.shape)}; must be bool [batch, rows, rows]")
    if tuple(kv_lengths.shape) != (tree.shape[0],) or tensors.dtype_text(kv_lengths.dtype) != "int32":
        raise ValueError(
            f"kv_lengths is {tensors.dtype_text(kv_lengths.dtype)} of shape {tuple(kv_lengths.shape)}; must be int32 "
            f"[{tree.shape[0]}], "
            "a length for each request of tree")
    first = kv_lengths - tree.shape[1]  # position of the first node

    def seen(b, h, q_idx, kv_idx):
        return (kv_idx < first[b]) | tree[b, q_idx - first[b], kv_idx - first[b]]

    return seen
