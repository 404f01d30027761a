# SPDX-License-Identifier: Apache-2.0
"""tree_mask(): a mask of drafted tokens that form a tree, for attention_kvcache(). Speculative decoding verifies such
trees in one call; see examples/guide/serving.md."""
from ..core import tensors


def tree_mask(tree, kv_lengths):
    """Returns a mask_mod for attention_kvcache() of drafted tokens that form a tree.

    The last rows of a request are the tree's nodes. tree[b, i, j] is True if node i sees node j, which is node i itself
    or an ancestor. All nodes see the keys before the nodes.
    tree: bool [batch, rows, rows]. kv_lengths: int32 [batch], as in attention_kvcache(), including the nodes. Both are
    read on the device: the tree of a captured graph may change. Give neither is_causal nor packed rows with it: each
    request has `rows` rows. Raises ValueError for other dtypes and shapes."""
    if len(tree.shape) != 3 or tree.shape[1] != tree.shape[2] or tensors.dtype_text(tree.dtype) != "bool":
        raise ValueError(
            f"tree is {tensors.dtype_text(tree.dtype)} of shape {tuple(tree.shape)}; must be bool [batch, rows, rows]")
    if tuple(kv_lengths.shape) != (tree.shape[0],) or tensors.dtype_text(kv_lengths.dtype) != "int32":
        raise ValueError(
            f"kv_lengths is {tensors.dtype_text(kv_lengths.dtype)} of shape {tuple(kv_lengths.shape)}; must be int32 "
            f"[{tree.shape[0]}], a length per request of tree")
    first = kv_lengths - tree.shape[1]  # position of the first node

    def seen(b, h, q_idx, kv_idx):
        return (kv_idx < first[b]) | tree[b, q_idx - first[b], kv_idx - first[b]]

    return seen
