# SPDX-License-Identifier: Apache-2.0
"""Gradients that have the same bits for each number of ranks: sums along a fixed tree over the blocks of rows. Used by
run.py.

The leaves are what the rows of one block give to all keys. Under a causal mask the tree pairs blocks with their mirror
images, as zigzag layouts do. A rank adds the parts of the tree that it has as a whole, and the owner of a key the rest.
"""
import torch

from .launches import differentiate_all
from .moves import Held, Item, overlaps
from .plan import Pass



def tree_order(blocks, mirrored):
    """Returns the numbers of the blocks in the order of the tree's leaves."""
    if not mirrored:
        return list(range(blocks))
    return [number for pair in range(blocks // 2) for number in (pair, blocks - 1 - pair)]


def is_empty(borders, number):
    return borders[number] == borders[number + 1]


def holder(ranges, borders, number):
    """True if these ranges of tokens hold a block, or it has no row."""
    return is_empty(borders, number) or any(
        first <= borders[number] and borders[number + 1] <= end for first, end in ranges)


def nodes_of(ranges, borders, order):
    """Returns the largest parts of the tree whose blocks these ranges hold, in the order of their leaves: lists of
    (level, index). Node (level, index) has the leaves from index * 2^level on, 2^level of them."""
    found, level = [], len(order).bit_length() - 1
    left = [(level, 0)]
    while left:
        level, index = left.pop()
        leaves = leaves_of((level, index), order)
        if all(is_empty(borders, leaf) for leaf in leaves):
            continue
        if all(holder(ranges, borders, leaf) for leaf in leaves):
            found.append((level, index))
        elif level:
            left += [(level - 1, 2 * index + 1), (level - 1, 2 * index)]
    return found


def leaves_of(node, order):
    level, index = node
    return order[index << level:(index + 1) << level]


def add_up(node, value):
    """Returns the sum of a part of the tree, or None. value: returns that of a node: True if its children must be
    added, else a tensor, which this function may write, or None."""
    found = value(node)
    if found is not True:
        return found
    level, index = node
    one, other = (add_up((level - 1, 2 * index + side), value) for side in (0, 1))
    if one is None or other is None:
        return other if one is None else one
    return one.add_(other)


class _Tree:
    """The tree of a Run's plan, and what its ranks have of it."""

    def __init__(self, run):
        self.borders = run.plan.blocks
        self.order = tree_order(len(self.borders) - 1, run.is_causal)
        self.root = len(self.order).bit_length() - 1, 0
        self.of_ranks = [nodes_of(ranges, self.borders, self.order) for ranges in run.layout.ranges]

    def rows(self, leaf):
        number = self.order[leaf]
        return range(self.borders[number], self.borders[number + 1])


def _add_ranks(run, steps, tree, parts, likes):
    """Returns the gradients of this rank's k and v, and moves the others' to their ranks. parts: Held, with the sums of
    this rank's nodes, dk and dv side by side. likes: k and v."""
    k, v = likes
    width = k.shape[3] + v.shape[3]
    new = lambda: run.held(torch.zeros((*k.shape[:3], width), dtype=torch.float32, device=k.device))
    found = {node: new() for nodes in tree.of_ranks for node in nodes}
    for node, part in zip(tree.of_ranks[run.group.rank], parts):
        for tokens in overlaps(run.layout.mine, part.ranges):
            found[node].part(tokens, part.heads()).copy_(part.part(tokens, part.heads()))
    nothing, items, moved = Held(new().tensor[:, :0], ()), [], []
    for slot in range(max(map(len, tree.of_ranks))):
        def take(step, part, slot=slot):
            found[tree.of_ranks[step.source][slot]].part(step.tokens, step.heads).copy_(part)
        items.append(Item(f"dkv {slot}", parts[slot] if slot < len(parts) else nothing, width, take))
        moved += [step._replace(what=f"dkv {slot}") for step in steps.transfers
                  if step.what == "dkv" and slot < len(tree.of_ranks[step.source])]
    run.move(run.kept((id(steps), "tree"), lambda: Pass(steps.received, moved, [], [])), items)
    total = add_up(tree.root, lambda node: found[node].tensor if node in found else node[0] > 0 or None)
    total = new().tensor if total is None else total
    return [part.to(like.dtype).contiguous() for part, like in zip(total.split([k.shape[3], v.shape[3]], 3), likes)]


def invariant_backward(run, steps, dout, q, keys, values, o, lse, dlse, features, learned, likes):
    """Returns the gradients of this rank's q, k and v, and of the learned features, with the same bits for each number
    of ranks. q, keys, values: Held. likes: this rank's k and v."""
    tree, x = _Tree(run), q.tensor
    dq = torch.zeros_like(x, dtype=torch.float32)
    totals = {name: torch.zeros_like(features[name], dtype=torch.float32) for name in learned}

    def of_node(node):
        """Returns what the rows of a block give to dk and dv, side by side."""
        level, index = node
        if level:
            return True
        mine = [one for one in run.launches(steps) if one.rows[0] in tree.rows(index)]
        if not mine:
            return None
        _, dk, dv, _ = differentiate_all(run, mine, dout, q, keys, values, o, lse, dlse, features, learned, True,
                                         (dq, totals))
        return torch.cat([dk, dv], 3)
    parts = [add_up(node, of_node) for node in tree.of_ranks[run.group.rank]]
    sums = _add_ranks(run, steps, tree, [Held(part, keys.ranges) for part in parts], likes)
    return dq.to(x.dtype), *sums, totals
