# SPDX-License-Identifier: Apache-2.0
"""FlashAttention-3 where it cannot be imported: its speed relative to cuDNN 9.19 in one run on one H200 (C++ `hopper` sources built
with nvcc 13.0, bf16, 2026-11). A peer timed through this table is marked "flash3_ratio"; windows, which cuDNN does not serve, carry
FlashAttention-3's TFLOP/s of that run as they stand."""

SEQLENS = (512, 1024, 2048, 4096, 8192, 16384)

# head_dim, causal: (cuDNN TFLOP/s, FlashAttention-3 TFLOP/s) for each of SEQLENS
GRID = {
    (64, False): ((384, 421, 439, 451, 458, 463), (327, 367, 459, 475, 518, 521)),
    (64, True): ((258, 332, 386, 400, 434, 448), (223, 300, 393, 449, 493, 514)),
    (128, False): ((501, 570, 578, 611, 619, 617), (391, 444, 467, 479, 495, 496)),
    (128, True): ((331, 420, 484, 519, 544, 557), (323, 465, 560, 610, 635, 659)),
    (256, False): ((513, 595, 620, 644, 666, 675), (395, 466, 485, 499, 508, 514)),
    (256, True): ((338, 447, 520, 556, 586, 591), (275, 368, 429, 468, 489, 498)),
}

# head_dim, causal: (cuDNN TFLOP/s in bf16, FlashAttention-3 TFLOP/s in e4m3, V transposed inside its kernel) for each of SEQLENS, in
# another run of the same build
FP8_GRID = {
    (128, False): ((474, 540, 565, 595, 609, 611), (434, 597, 640, 724, 764, 774)),
    (128, True): ((313, 382, 428, 479, 512, 526), (277, 410, 521, 637, 720, 741)),
    (256, False): ((489, 563, 613, 636, 666, 667), (746, 915, 1032, 1101, 1152, 1173)),
    (256, True): ((331, 414, 472, 513, 549, 583), (454, 669, 853, 987, 1085, 1160)),
}

# case name: (cuDNN, FlashAttention-3)
OTHERS = {
    "llama8b gqa4 causal 2048": (461, 583),
    "llama70b gqa8 causal 2048": (463, 593),
    "mqa gemma d256 causal 2048": (370, 399),
    "llama8b gqa4 causal 8192": (560, 635),
    "llama70b gqa8 causal 8192": (556, 639),
    "mqa gemma d256 causal 8192": (593, 500),
    "bert-base 512 full": (353, 306),
    "vit-L 577 full": (298, 257),
    "sd cross 4096x77": (127, 103),
    "256 queries over 32768": (91, 65),
    "1024 queries over 32768": (362, 262),
    "512 queries over 8192 batch 4": (615, 496),
}

# case name: FlashAttention-3's TFLOP/s over visible elements
WINDOWS = {
    "window 1024 d128 2048": 498,
    "window 1024 d128 8192": 506,
    "window 1024 d128 32768": 514,
    "window 128 d64 8192": 105,
    "window 128 d64 32768": 112,
}


def flash3_tflops(case, cudnn_tflops):
    """TFLOP/s that FlashAttention-3 would give where cuDNN gives cudnn_tflops now; None where there is no figure."""
    if case.name in WINDOWS:
        return float(WINDOWS[case.name])
    pair = OTHERS.get(case.name)
    if pair is None and case.seqlen_q in SEQLENS and (case.head_dim, case.causal) in GRID:
        column = SEQLENS.index(case.seqlen_q)
        pair = tuple(row[column] for row in GRID[case.head_dim, case.causal])
    return None if pair is None or cudnn_tflops is None else cudnn_tflops * pair[1] / pair[0]


def flash3_fp8_tflops(case, cudnn_tflops):
    """TFLOP/s that FlashAttention-3 would give on e4m3 operands where cuDNN gives cudnn_tflops on bf16 now."""
    rows = FP8_GRID.get((case.head_dim, case.causal))
    if rows is None or case.seqlen_q not in SEQLENS or cudnn_tflops is None:
        return None
    column = SEQLENS.index(case.seqlen_q)
    return cudnn_tflops * rows[1][column] / rows[0][column]
