# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's wrappers of attention over sparse blocks, on attention(). See __init__.py.

plan() makes one mask of the blocks. Blocks that begin at multiples of 64 rows and 16 keys become a block map, which the
kernel walks. Others become a mask of elements [1, heads or 1, M, N], whose empty granules a block map skips."""
from ..adapters.errors import named
from ..core.flags import flag
from ..core.preparing import copied
from ..ops.attention import attention
from ..score.block_maps import GRANULE_KEYS, GRANULE_ROWS
from . import arguments, lists
from .wrapper import with_lse

_CAUSAL = "causal is True; must be False: give the blocks on the diagonal a mask of elements"


class _Sparse:
    """The base of both wrappers: a plan is a mask of blocks, in the form of attention()'s keywords."""

    def __init__(self, float_workspace_buffer, backend="auto"):
        arguments.hints(words=(("backend", backend),))
        self._workspace, self._planned = arguments.workspace("float_workspace_buffer", float_workspace_buffer), None

    def reset_workspace_buffer(self, float_workspace_buffer=None, int_workspace_buffer=None, *buffers):
        """Sets the workspace, whose device later plans use; None keeps the current one."""
        for value in (int_workspace_buffer, *buffers):
            arguments.workspace("int_workspace_buffer", value)
        if arguments.workspace("float_workspace_buffer", float_workspace_buffer) is not None:
            self._workspace = float_workspace_buffer

    def end_forward(self):
        """Does nothing, as in FlashInfer."""

    def _choose(self, num_qo_heads, num_kv_heads, head_dim, types, *, causal, pos_encoding_mode, hints, logits_soft_cap,
                sm_scale, rope):
        """Checks what both plans have in common. Returns the choices of attention()."""
        arguments.heads(num_qo_heads, num_kv_heads)
        arguments.count("head_dim", head_dim)
        if flag("causal", causal):
            raise ValueError(_CAUSAL)
        if pos_encoding_mode != "NONE":
            raise ValueError(f"pos_encoding_mode is {pos_encoding_mode!r}; must be 'NONE'")
        arguments.hints(flags=hints)
        arguments.rotary(*rope)
        self._types = [
            arguments.dtype_of(name, given)
            for name, given in zip(("q_data_type", "kv_data_type", "o_data_type"), types)]
        self._heads = num_qo_heads, num_kv_heads, head_dim
        return {"softcap": arguments.soft_cap(logits_soft_cap), "scale": arguments.scale_of("sm_scale", sm_scale)}

    def _attend(self, q, k, v, scales, out, lse, return_lse):
        """q: [M, num_qo_heads, head_dim]; k, v: [N, num_kv_heads, head_dim]."""
        import torch
        if self._planned is None:
            raise RuntimeError("run() is called before plan(); call plan() first")
        masks, choices, (rows, keys), device = self._planned
        of_q, of_k, head_dim = self._heads
        for name, x, shape in (("q", q, (rows, of_q, head_dim)), ("k", k, (keys, of_k, head_dim)),
                               ("v", v, (keys, of_k, head_dim))):
            arguments.floats(name, x, "[rows, heads, head_dim]")
            if tuple(x.shape) != shape or x.device != device:
                raise ValueError(f"{name} has shape {tuple(x.shape)} on {x.device}; must be {shape} on {device}, as "
                                 "planned")
        of_types = (("q", q, "q_data_type"), ("k", k, "kv_data_type"), ("out", q, "o_data_type"))
        for (name, x, said), planned in zip(of_types, self._types):
            arguments.check_dtype(name, x, said, planned)
        keywords, factor = lists.scales_of(q, k, choices["scale"], *scales)
        return_lse = flag("return_lse", return_lse) or lse is not None
        given = None if out is None else arguments.buffer("out", out, q.shape, q.dtype, q.device)[None]
        found = named({"scale": "sm_scale", "softcap": "logits_soft_cap"}, attention, q[None], k[None], v[None],
                      out=given, return_lse=return_lse, **masks, **{**choices, **keywords})
        o, natural = found if return_lse else (found, None)
        o = o[0] if factor == 1 else o[0].mul_(factor)
        if natural is None:
            return o if out is None else out
        made = lists.in_base_2(natural)[0]
        if lse is not None:
            made = copied(arguments.buffer("lse", lse, made.shape, torch.float32, q.device), made)
        return o if out is None else out, made

    def _run(self, q, k, v, scales, out, lse, return_lse):
        found = self._attend(q, k, v, scales, out, lse, return_lse)
        return found if flag("return_lse", return_lse) or not isinstance(found, tuple) else found[0]

    def __init_subclass__(cls):
        cls.run_return_lse = with_lse(cls.run)


def _map_of(seen, extents, device):
    """Returns the keyword of attention() for seen granules, bool [heads or 1, granules of rows, granules of keys]."""
    from .. import block_map
    made = block_map.from_blocks(seen.to(device)[None], GRANULE_ROWS, GRANULE_KEYS, *extents)
    return {"block_map": made}


def _mask_of(seen, device):
    """Returns the keywords of attention() for seen elements, bool [heads or 1, rows, keys]."""
    import torch
    from .. import block_map
    mask = seen.to(device)[None].contiguous()
    of_q, of_k = (torch.empty((1, extent, mask.shape[1], 16), device=device) for extent in mask.shape[2:])
    return {"mask_tensor": mask, "block_map": block_map.build(of_q, of_k, mask_tensor=mask)}


def _spread(blocks, row_sizes, key_sizes):
    """Returns blocks, bool [block rows, block keys], spread over the numbers of rows and keys of each."""
    return blocks.repeat_interleave(row_sizes, 0).repeat_interleave(key_sizes, 1)


def _masks_of(blocks, row_sizes, key_sizes, extents, device):
    """Returns the keywords of attention() for whole blocks. blocks: bools of a head each. row_sizes, key_sizes: int64
    on the host, for each head."""
    import torch
    aligned = all(not bool((sizes.cumsum(0)[:-1] % grain).any()) for of, grain in
                  ((row_sizes, GRANULE_ROWS), (key_sizes, GRANULE_KEYS)) for sizes in of)
    if not aligned:
        return _mask_of(torch.stack([_spread(*one) for one in zip(blocks, row_sizes, key_sizes)]), device)
    granules = [_spread(b, -(-r // GRANULE_ROWS), -(-k // GRANULE_KEYS)) for b, r, k in
                zip(blocks, row_sizes, key_sizes)]
    return _map_of(torch.stack(granules), extents, device)


def _sizes(extent, block):
    """Returns the sizes of the blocks of an extent. The last may be smaller."""
    import torch
    sizes = torch.full((-(-extent // block),), block, dtype=torch.int64, device="cpu")
    sizes[-1] = extent - block * (sizes.numel() - 1)
    return sizes


class BlockSparseAttentionWrapper(_Sparse):
    """Attention of M rows to N keys, of which a matrix of blocks says what is seen: of R rows and C keys each, for all
    heads, in the form of SciPy's bsr_matrix, or bools for each head."""

    def plan(self, indptr, indices, M, N, R, C, num_qo_heads, num_kv_heads, head_dim, mask=None, packed_mask=None,
             causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False, logits_soft_cap=None, sm_scale=None,
             rope_scale=None, rope_theta=None, q_data_type="float16", kv_data_type=None, o_data_type="float16",
             non_blocking=True, block_mask=None, kv_block_lens=None, q2k_indices=None, q2k_num=None, kv_splits=None,
             use_clc=None, q_scale=None, k_scale=None, v_scale=None):
        """Sets the blocks and choices of later runs.

        indptr: int32 [ceil(M / R) + 1], indices: int32 [blocks], the block columns of each block row. mask: bool
        [blocks, R, C], the seen elements of each block; packed_mask: the bits of the same, block row by block row, as
        FlashInfer packs them. block_mask: bool [num_qo_heads or num_kv_heads, ceil(M / R), ceil(N / C)] in place of
        indptr and indices. kv_data_type None: q_data_type. causal must be False."""
        import torch
        arguments.nothing(kv_block_lens=kv_block_lens, q2k_indices=q2k_indices, q2k_num=q2k_num, q_scale=q_scale,
                          k_scale=k_scale, v_scale=v_scale, kv_splits=kv_splits, use_clc=use_clc)
        choices = self._choose(
            num_qo_heads, num_kv_heads, head_dim,
            (q_data_type, q_data_type if kv_data_type is None else kv_data_type, o_data_type), causal=causal,
            pos_encoding_mode=pos_encoding_mode, logits_soft_cap=logits_soft_cap, sm_scale=sm_scale,
            hints=(("use_fp16_qk_reduction", use_fp16_qk_reduction), ("non_blocking", non_blocking)),
            rope=(rope_scale, rope_theta))
        extents = arguments.count("M", M), arguments.count("N", N)
        block = arguments.count("R", R), arguments.count("C", C)
        sizes = [_sizes(extent, one) for extent, one in zip(extents, block)]
        shape = tuple(one.numel() for one in sizes)
        device = torch.device(lists.device_of(self._workspace, indptr, indices, block_mask))
        if block_mask is not None:
            blocks = self._of_heads(block_mask, shape)
            arguments.nothing(indptr=indptr, indices=indices, mask=mask, packed_mask=packed_mask)
            masks = _masks_of(blocks, [sizes[0]] * len(blocks), [sizes[1]] * len(blocks), extents, device)
        else:
            rows, columns = self._places(indptr, indices, shape)
            if mask is None and packed_mask is None:
                blocks = torch.zeros(shape, dtype=torch.bool, device="cpu").index_put_(
                    (rows, columns), torch.ones((), dtype=torch.bool, device="cpu"))
                masks = _masks_of([blocks], [sizes[0]], [sizes[1]], extents, device)
            else:
                masks = _mask_of(self._elements(mask, packed_mask, rows, columns, block, extents)[None], device)
        self._planned = masks, choices, extents, device

    begin_forward = plan

    def _of_heads(self, block_mask, shape):
        """Returns bools on the host, one matrix for each head of q."""
        of_q, of_k, _ = self._heads
        made = arguments.bools("block_mask", block_mask, "cpu")
        if tuple(made.shape) not in ((of_q, *shape), (of_k, *shape)):
            raise ValueError(f"block_mask has shape {tuple(made.shape)}; must be {(of_q, *shape)} or {(of_k, *shape)}")
        return list(made.repeat_interleave(of_q // made.shape[0], 0))

    @staticmethod
    def _places(indptr, indices, shape):
        """Returns the block row and the block column of each block, on the host."""
        begins = arguments.integers("indptr", indptr).long()
        columns = arguments.integers("indices", indices, "[blocks]").long()
        counts = begins.diff()
        if begins.numel() != shape[0] + 1 or int(begins[0]) != 0 or bool((counts < 0).any()):
            raise ValueError(f"indptr is {begins.tolist()[:8]} with {begins.numel()} numbers; must be {shape[0] + 1} "
                             "numbers that rise from 0")
        if columns.numel() != int(begins[-1]) or bool(((columns < 0) | (columns >= shape[1])).any()):
            most = int(columns.max()) if columns.numel() else 0
            raise ValueError(f"indices has {columns.numel()} numbers up to {most}; must be {int(begins[-1])} numbers "
                             f"below {shape[1]}, one for each block")
        import torch
        return torch.arange(shape[0], device="cpu").repeat_interleave(counts), columns

    @staticmethod
    def _elements(mask, packed_mask, rows, columns, block, extents):
        """Returns bool [M, N] on the host: the seen elements of all blocks."""
        import torch
        if mask is not None and packed_mask is not None:
            raise ValueError("mask and packed_mask are given; give one of them")
        padded = [-(-extent // one) * one for extent, one in zip(extents, block)]
        if mask is not None:
            made = arguments.bools("mask", mask, "cpu")
        else:
            counts = torch.bincount(rows, minlength=padded[0] // block[0])
            made = _unpacked(packed_mask, counts * block[0] * block[1], counts, block)
        if tuple(made.shape) != (rows.numel(), *block):
            raise ValueError(f"mask has shape {tuple(made.shape)}; must be {(rows.numel(), *block)}: the elements of "
                             "each block")
        seen = torch.zeros((padded[0] // block[0], padded[1] // block[1], *block), dtype=torch.bool, device="cpu")
        seen.index_put_((rows, columns), made)
        return seen.transpose(1, 2).reshape(padded)[:extents[0], :extents[1]]

    def run(self, q, k, v, scale_q=None, scale_k=None, scale_v=None, out=None, lse=None, return_lse=False,
            enable_pdl=None):
        """Returns out [M, num_qo_heads, head_dim], with return_lse (out, lse fp32 [M, num_qo_heads] in base 2).

        q: [M, num_qo_heads, head_dim]; k, v: [N, num_kv_heads, head_dim]. scale_q, scale_k, scale_v: their factors."""
        arguments.hints(flags=(("enable_pdl", enable_pdl),))
        scales = [arguments.scale_of(name, one) for name, one in (("scale_q", scale_q), ("scale_k", scale_k))]
        factor = None if scale_v is None else arguments.number("scale_v", scale_v)
        return self._run(q, k, v, (*scales, factor), out, lse, return_lse)

    def forward(self, q, k, v, pos_encoding_mode="NONE", use_fp16_qk_reduction=False, logits_soft_cap=None,
                sm_scale=None, rope_scale=None, rope_theta=None):
        """Calls run() with other choices, which stay for later runs of the plan."""
        if self._planned is None:
            raise RuntimeError("forward() is called before plan(); call plan() first")
        choices = self._choose(*self._heads, self._types, causal=False, pos_encoding_mode=pos_encoding_mode,
                               logits_soft_cap=logits_soft_cap, sm_scale=sm_scale,
                               hints=(("use_fp16_qk_reduction", use_fp16_qk_reduction),),
                               rope=(rope_scale, rope_theta))
        self._planned = self._planned[0], choices, *self._planned[2:]
        return self.run(q, k, v)


def _unpacked(packed, sizes, counts, block):
    """Returns the bools of a mask in bits [blocks, R, C]. Each block row begins with a new byte, and has its rows one
    after the other, each over all its blocks."""
    import torch
    from .masks import bits_of
    bits, made, at = bits_of(packed, sizes, "packed_mask"), [], 0
    for size, count in zip(sizes.tolist(), counts.tolist()):
        made.append(bits[at:at + size].reshape(block[0], count, block[1]).transpose(0, 1))
        at += size
    return torch.cat(made)


class VariableBlockSparseAttentionWrapper(_Sparse):
    """Attention over blocks of any sizes, which differ between the heads of k."""

    def plan(self, block_mask_map, block_row_sz, block_col_sz, num_qo_heads, num_kv_heads, head_dim, causal=False,
             pos_encoding_mode="NONE", use_fp16_qk_reduction=False, logits_soft_cap=None, sm_scale=None,
             rope_scale=None, rope_theta=None, non_blocking=True, q_data_type="float16", kv_data_type=None):
        """Sets the blocks and choices of later runs.

        block_mask_map: bool [num_kv_heads, block rows, block columns]. block_row_sz, block_col_sz: int32 [num_kv_heads,
        block rows] and [.., block columns], their rows and keys, whose sums are equal for all heads."""
        import torch
        types = q_data_type, q_data_type if kv_data_type is None else kv_data_type, None
        choices = self._choose(
            num_qo_heads, num_kv_heads, head_dim, types, causal=causal, pos_encoding_mode=pos_encoding_mode,
            logits_soft_cap=logits_soft_cap, sm_scale=sm_scale, rope=(rope_scale, rope_theta),
            hints=(("use_fp16_qk_reduction", use_fp16_qk_reduction), ("non_blocking", non_blocking)))
        device = torch.device(lists.device_of(self._workspace, block_mask_map))
        blocks = arguments.bools("block_mask_map", block_mask_map, "cpu")
        if blocks.dim() != 3 or blocks.shape[0] != num_kv_heads:
            raise ValueError(f"block_mask_map has shape {tuple(blocks.shape)}; must be [{num_kv_heads}, block rows, "
                             "block columns]")
        rows = self._sizes_of("block_row_sz", block_row_sz, (num_kv_heads, blocks.shape[1]))
        keys = self._sizes_of("block_col_sz", block_col_sz, (num_kv_heads, blocks.shape[2]))
        extents = int(rows[0].sum()), int(keys[0].sum())
        ratio = num_qo_heads // num_kv_heads
        masks = _masks_of(*(x.repeat_interleave(ratio, 0) for x in (blocks, rows, keys)), extents, device)
        self._planned = masks, choices, extents, device

    begin_forward = plan

    @staticmethod
    def _sizes_of(name, values, shape):
        arguments.check_integers(name, values, "[num_kv_heads, blocks]", 2)
        made = lists.on_host(values).long()
        if tuple(made.shape) != shape or bool((made < 0).any()) or bool((made.sum(1) != made[0].sum()).any()):
            raise ValueError(f"{name} has shape {tuple(made.shape)} and sums {made.sum(-1).tolist()[:8]}; must be "
                             f"{shape} of numbers from 0 on, with equal sums")
        return made

    def run(self, q, k, v, out=None, lse=None, return_lse=False, enable_pdl=None):
        """Returns out [num_qo_heads, rows, head_dim], with return_lse (out, lse fp32 [num_qo_heads, rows] in base 2).

        q: [num_qo_heads, rows, head_dim]; k, v: [num_kv_heads, keys, head_dim]."""
        arguments.hints(flags=(("enable_pdl", enable_pdl),))
        for name, x in (("q", q), ("k", k), ("v", v), ("out", out)):
            if x is not None or name != "out":
                arguments.tensor(name, x, "[heads, rows, head_dim]")
        if lse is not None:
            arguments.tensor("lse", lse, "[num_qo_heads, rows]")
        by_rows = [x.transpose(0, 1) for x in (q, k, v)]
        found = self._attend(*by_rows, (None, None, None), None if out is None else out.transpose(0, 1),
                             None if lse is None else lse.transpose(0, 1), return_lse)
        o, made = found if isinstance(found, tuple) else (found, None)
        o = out if out is not None else o.transpose(0, 1)
        if not flag("return_lse", return_lse):
            return o
        return o, made.transpose(0, 1) if lse is None else lse
