#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C module's structs (runtime/python/module/structs.h): fields, views, copies, what they keep alive, and the values
that they refuse. tests/capi/struct_layout_test.py compares their layout with the header. Needs no device."""
import ctypes
import gc
import struct
import sys
import unittest
import weakref

from attune.core.library import Error, module


class Kept:
    pass


class StructsTest(unittest.TestCase):
    def test_fields_are_in_the_bytes(self):
        tensor = module.Tensor(16, 3, row_stride=-2, head_stride=1 << 40)
        self.assertEqual(struct.unpack("Pqqq", bytes(tensor)), (16, 3, -2, 1 << 40))
        self.assertEqual(ctypes.string_at(tensor.address, module.Tensor.num_bytes), bytes(tensor))
        dropout = module.DropoutOperands(seed=-1, offset=1 << 63)
        self.assertEqual((dropout.seed, dropout.offset), ((1 << 64) - 1, 1 << 63))
        rotary = module.rotary()
        rotary.base = 0.1
        self.assertEqual((rotary.base, rotary.rotary_dim), (struct.unpack("f", struct.pack("f", 0.1))[0], 0))
        for of in (module.Operands, module.CacheOperands, module.AppendOperands, module.GradientOperands,
                   module.DropoutOperands, module.Rotary, module.BlockMapStruct):
            self.assertEqual(struct.unpack_from("N", bytes(of()))[0], of.num_bytes)  # its size comes first

    def test_views_and_copies(self):
        operands = module.Operands(q=module.Tensor(16, 1, 2, 3), lse=None)
        view, copy = operands.q, operands.copy()
        view.data, operands.k = 32, view
        self.assertEqual((operands.q.data, operands.k.row_stride, copy.q.data, copy.k.data), (32, 2, 16, None))
        address = operands.address
        del operands
        gc.collect()
        self.assertEqual((view.address, view.batch_stride), (address + module.Operands.offsets["q"], 1))

    def test_what_a_struct_points_to_lives_as_long(self):
        cache, kept = module.CacheOperands(num_pages=7), Kept()
        cache.kept, alive = kept, weakref.ref(kept)
        operands, address = module.Operands(cache=cache), cache.address
        copy = operands.copy()
        del cache, kept, operands
        gc.collect()
        self.assertIsNotNone(alive())
        offset = module.Operands.offsets["cache"]
        self.assertEqual(struct.unpack_from("P", bytes(copy), offset)[0], address)
        self.assertEqual((copy.cache.num_pages, copy.cache.address), (7, address))
        copy.cache = None
        self.assertEqual((alive(), copy.cache, struct.unpack_from("P", bytes(copy), offset)[0]), (None, None, 0))

    def test_score_operands(self):
        text = "a name of its own"
        scores = module.score_operands([(text, 64, (1, 2), ()), ("b", None, (), (3, ))], [("s", 0.5)], -1, 9)
        self.assertEqual((scores.num_captures, scores.num_scalars, scores.q_position0, scores.kv_position0),
                         (2, 1, -1, 9))
        first, second = struct.iter_unpack("PP4q4q", scores.captures)
        self.assertEqual((ctypes.string_at(first[0]).decode(), *first[1:]), (text, 64, 1, 2, 0, 0, 0, 0, 0, 0))
        self.assertEqual((ctypes.string_at(second[0]), *second[1:]), (b"b", 0, 0, 0, 0, 0, 3, 0, 0, 0))
        (name, value), = struct.iter_unpack("Pd", scores.scalars)
        self.assertEqual((ctypes.string_at(name), value), (b"s", 0.5))
        for wrong in (([("a", 1, (1, ) * 5, ())], [], 0, 0), ([("a", 1, [1], ())], [], 0, 0), ([], [("s", "x")], 0, 0),
                      ([("a", 1, (1 << 64, ), ())], [], 0, 0), ([], [], 1 << 40, 0), (None, [], 0, 0)):
            with self.assertRaises((TypeError, ValueError, OverflowError)):
                module.score_operands(*wrong)

    def test_values_that_do_not_fit(self):
        operands, cache = module.Operands(), module.CacheOperands()
        for name, value, error, sentence in (
            ("lse_batch_stride", 1 << 63, ValueError, "lse_batch_stride is 9223372036854775808; must be an int of 64"),
            ("lse_batch_stride", 1.5, TypeError, "int"), ("lse", "x", TypeError, "int"),
            ("lse", 1 << 80, OverflowError, ""), ("q", cache, TypeError, "must be of type Tensor"),
            ("cache", 5, TypeError, "must be of type CacheOperands"),
            ("cache", module.Scale(), TypeError, "must be of type CacheOperands"),
            ("other", 1, AttributeError, "other")):
            with self.subTest(name), self.assertRaisesRegex(error, sentence):
                setattr(operands, name, value)
        with self.assertRaisesRegex(ValueError, "index_bytes is 4294967296; must be an int of 32 bits"):
            module.AppendOperands(index_bytes=1 << 32)
        with self.assertRaisesRegex(AttributeError, "lse cannot be deleted"):
            del operands.lse
        with self.assertRaisesRegex(TypeError, "fewer fields"):
            module.Tensor(1, 2, 3, 4, 5)
        with self.assertRaises(AttributeError):
            module.Tensor(strides=1)
        for call, given in ((module.plan_get, (1, operands, None)), (module.run, (-1, 1, cache, 0, 0, 0)),
                            (module.block_map_layout, (None, ))):
            with self.assertRaisesRegex(TypeError, "must be of type"):
                call(*given)
        self.assertEqual(bytes(operands), bytes(module.Operands()))  # nothing was written

    def test_a_problem_is_read_only(self):
        text = b"op=attention_kvcache,batch=3,seqlen_q=1,seqlen_kv=64,page_size=16,heads=4/2,head_dim=32,scale=0.5"
        problem = module.problem(text, (("block_map", 1), ("score_mod", 64)))
        for name, value in (("batch", 3), ("page_size", 16), ("softmax_scale", 0.5), ("block_map", 1),
                            ("score_mod", 64), ("mask_mod", None), ("window_left", -1)):
            self.assertEqual(getattr(problem, name), value)
            with self.assertRaises(AttributeError):
                setattr(problem, name, value)
        with self.assertRaisesRegex(AttributeError, "Problem has no field pages"):
            module.problem(text, (("pages", 1), ))
        with self.assertRaisesRegex(Error, "pages"):
            module.problem(b"pages=1", ())

    def test_nothing_leaks(self):
        cache = module.CacheOperands()

        def use():
            operands = module.Operands(cache=cache, q=module.Tensor(16, 1, 2, 3))
            operands.kept = operands.copy().q, bytes(operands), module.score_operands([("a", 1, (1, ), ())], [], 0, 0)
            module.problem(b"heads=1,head_dim=32,seqlen=1", ())
            for wrong in (lambda: module.Operands(q=1), lambda: module.score_operands([()], [], 0, 0)):
                try:
                    wrong()
                except TypeError:
                    pass

        use()
        counts = sys.getrefcount(cache), sys.getrefcount(module.Operands), sys.getrefcount(module.Tensor)
        for _ in range(1000):
            use()
        self.assertEqual((sys.getrefcount(cache), sys.getrefcount(module.Operands), sys.getrefcount(module.Tensor)),
                         counts)


if __name__ == "__main__":
    unittest.main()
