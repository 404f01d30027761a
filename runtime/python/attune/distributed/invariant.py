# SPDX-License-Identifier: Apache-2.0
"""Sums of gradients that have the same bits for each number of ranks: a fixed tree over the blocks of rows. Used by
run.py.

The leaves are what the rows of one block give to all keys. Under a causal mask the tree pairs blocks with their mirror
images, as zigzag layouts do. A rank adds the parts of the tree that it has as a whole, and the owner of a key the rest.
"""


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
