# SPDX-License-Identifier: Apache-2.0
"""Masks and scores that users of FlexAttention know by these names (most are in attention-gym), rewritten from their
definitions. They take arrays of indices or one index each. Used by score_mod_test.py."""
import numpy as np


def noop(score, b, h, q_idx, kv_idx):
    return score


def natten(width, height, kernel):
    """Neighbours of a pixel in an image whose pixels stand in rows; at the borders the window moves inwards."""
    def mask(b, h, q_idx, kv_idx):
        q_x, q_y, kv_x, kv_y = q_idx // width, q_idx % width, kv_idx // width, kv_idx % width
        center_x = np.clip(q_x, kernel // 2, height - 1 - kernel // 2)
        center_y = np.clip(q_y, kernel // 2, width - 1 - kernel // 2)
        return (abs(center_x - kv_x) <= kernel // 2) & (abs(center_y - kv_y) <= kernel // 2)
    return mask


def tiled_natten(width, height, kernel, tile):
    """Like the neighbourhood above, of an image stored in tiles, row by row in each."""
    tiles = width // tile

    def place(index):
        number, inside = index // (tile * tile), index % (tile * tile)
        return number // tiles * tile + inside // tile, number % tiles * tile + inside % tile

    def mask(b, h, q_idx, kv_idx):
        (q_x, q_y), (kv_x, kv_y) = place(q_idx), place(kv_idx)
        center_x = np.clip(q_x, kernel // 2, height - 1 - kernel // 2)
        center_y = np.clip(q_y, kernel // 2, width - 1 - kernel // 2)
        return (abs(center_x - kv_x) <= kernel // 2) & (abs(center_y - kv_y) <= kernel // 2)
    return mask


def morton_natten(width, height, kernel):
    """Like the neighbourhood above, of an image in Morton order: x and y have every second bit of the index."""
    def half(index):
        index = index & 0x55555555
        for shift, bits in ((1, 0x33333333), (2, 0x0f0f0f0f), (4, 0x00ff00ff)):
            index = (index | (index >> shift)) & bits
        return index

    def mask(b, h, q_idx, kv_idx):
        q_x, q_y, kv_x, kv_y = half(q_idx >> 1), half(q_idx), half(kv_idx >> 1), half(kv_idx)
        center_x = np.clip(q_x, kernel // 2, height - 1 - kernel // 2)
        center_y = np.clip(q_y, kernel // 2, width - 1 - kernel // 2)
        return (abs(center_x - kv_x) <= kernel // 2) & (abs(center_y - kv_y) <= kernel // 2)
    return mask


def sliding_tile(canvas, kernel, tile):
    """Tiles of a 2-D canvas whose pixels stand tile by tile see those at most kernel / 2 tiles away."""
    def mask(b, h, q_idx, kv_idx):
        q_tile, kv_tile = q_idx // (tile * tile), kv_idx // (tile * tile)
        wide = canvas // tile
        q_x, q_y, kv_x, kv_y = q_tile // wide, q_tile % wide, kv_tile // wide, kv_tile % wide
        center_x = np.clip(q_x, kernel // 2, wide - 1 - kernel // 2)
        center_y = np.clip(q_y, kernel // 2, wide - 1 - kernel // 2)
        return (abs(center_x - kv_x) <= kernel // 2) & (abs(center_y - kv_y) <= kernel // 2)
    return mask


def stand_alone_self_attention(width, kernel):
    """Pixels of an image see those around them, fewer at its borders."""
    def mask(b, h, q_idx, kv_idx):
        dx, dy = abs(q_idx // width - kv_idx // width), abs(q_idx % width - kv_idx % width)
        return (dx <= kernel // 2) & (dy <= kernel // 2)
    return mask


def transfusion(starts, ends):
    """Causal, and all of an image: where each position's image begins and ends, -1 outside of one."""
    def mask(b, h, q_idx, kv_idx):
        inside = (starts[b, q_idx] >= 0) & (starts[b, q_idx] == starts[b, kv_idx]) & (kv_idx < ends[b, q_idx])
        return (q_idx >= kv_idx) | inside
    return mask


def flamingo(media_of_text, tokens_of_media):
    """Text sees the tokens of the last image before it alone."""
    def mask(b, h, q_idx, kv_idx):
        return (kv_idx // tokens_of_media == media_of_text[b, q_idx] - 1) & (media_of_text[b, q_idx] > 0)
    return mask


def jagged(document, offsets, inner):
    """Sequences one behind the other; `inner` sees the positions in each."""
    def mask(b, h, q_idx, kv_idx):
        own = document[q_idx]
        return (own == document[kv_idx]) & inner(b, h, q_idx - offsets[own], kv_idx - offsets[document[kv_idx]])
    return mask


def batchify(mask, limit):
    return lambda b, h, q_idx, kv_idx: mask(b, h, q_idx, kv_idx) & (kv_idx < limit[b]) & (q_idx < limit[b])


def paged(physical_to_logical, page_size, inner):
    """Keys stand in pages of a pool; pages that are not of this sequence have -1."""
    def mask(b, h, q_idx, kv_idx):
        page = physical_to_logical[b, kv_idx // page_size]
        return (page >= 0) & inner(b, h, q_idx, page * page_size + kv_idx % page_size)
    return mask


def activation(score, b, h, q_idx, kv_idx):
    return np.maximum(score, 0) * score * 0.25


def rope_score(q_parts, k_parts):
    """Adds the rotary parts of latent attention; two elements of each."""
    def score(score, b, h, q_idx, kv_idx):
        return score + (q_parts[b, h, q_idx, 0] * k_parts[b, kv_idx, 0] +
                        q_parts[b, h, q_idx, 1] * k_parts[b, kv_idx, 1]) * 0.125
    return score


def soft_window(decay):
    return lambda score, b, h, q_idx, kv_idx: score + decay[h] * -np.log2(abs(q_idx - kv_idx) + 1.0)
