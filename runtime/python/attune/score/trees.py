# SPDX-License-Identifier: Apache-2.0
"""Masks of tokens that form trees. prefix_tree(), prefix_tree_mask(): sequences that share prefixes, packed into one for
training. tree_mask(): drafted tokens, as speculative decoding verifies them."""
from collections import namedtuple
from itertools import accumulate

from ..core import tensors

# ends: one past the last token that sees a token. positions: of a token in its own sequence. Both are lists of ints.
PrefixTree = namedtuple("PrefixTree", "ends positions")


def prefix_tree(parents, lengths):
    """Returns the PrefixTree of sequences that share prefixes and are packed into one, so that each prefix is there once.

    Node i of the trees has lengths[i] tokens, which follow those of node parents[i]; -1: node i begins a tree. Nodes come
    in depth-first order, each before all that follow it.
    ends[t]: one past the last token that sees token t, for prefix_tree_mask(). positions[t]: the place of token t in its
    own sequence, counted from 0, for rotary angles. Both have an int for each token.
    Raises ValueError for other parents, orders and lengths."""
    if len(parents) != len(lengths):
        raise ValueError(f"lengths has {len(lengths)} nodes; must have {len(parents)}, as parents does")
    begins = [0, *accumulate(lengths)]
    path, ends, depths = [], [0] * len(lengths), []
    for node, (parent, length) in enumerate(zip(parents, lengths)):
        if length < 0:
            raise ValueError(f"lengths[{node}] is {length}; must be 0 or more")
        if parent != -1 and parent not in path:
            raise ValueError(f"parents[{node}] is {parent}; must be -1 or on the way to node {node - 1} ({path}), since "
                             "nodes come in depth-first order")
        while path and path[-1] != parent:
            ends[path.pop()] = begins[node]
        depths.append(depths[parent] + lengths[parent] if path else 0)
        path.append(node)
    for node in path:
        ends[node] = begins[-1]
    nodes = [node for node, length in enumerate(lengths) for _ in range(length)]
    return PrefixTree([ends[node] for node in nodes],
                      [depths[node] + token - begins[node] for token, node in enumerate(nodes)])


def prefix_tree_mask(ends):
    """Returns a mask_mod for attention() of packed prefix trees. A token sees itself and those before it on its path.

    ends: int32 [batch, seqlen], prefix_tree().ends of each batch entry, on the device of q. It is read there: a captured
    graph may change it. Give no is_causal with it. Raises ValueError for other dtypes and shapes."""
    if len(ends.shape) != 2 or tensors.dtype_text(ends.dtype) != "int32":
        raise ValueError(
            f"ends is {tensors.dtype_text(ends.dtype)} of shape {tuple(ends.shape)}; must be int32 [batch, seqlen]")

    def seen(b, h, q_idx, kv_idx):
        return (kv_idx <= q_idx) & (q_idx < ends[b, kv_idx])

    return seen


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
