#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests driver_floor.py on a stub driver that records its launches. Usage: driver_floor_test.py STUB."""
import ctypes
import re
import sys
import unittest
from pathlib import Path

import driver_floor
import python_overhead

stub = ctypes.CDLL(sys.argv.pop(1), mode=ctypes.RTLD_GLOBAL)
HEADER = Path(__file__).resolve().parents[3] / "templates" / "shared" / "attention_args.h"


class DriverFloorTest(unittest.TestCase):
    def test_launches(self):
        runners = driver_floor.runners()
        text = (ctypes.c_char * 4096).in_dll(stub, "attune_stub_text").value.decode()
        self.assertEqual([int(size) for size in re.findall(r"p\d\[(\d+)\]", text)], list(driver_floor.PARAMETERS))
        launches = (ctypes.c_int * 2).in_dll(stub, "attune_stub_launches")
        for name, place, attribute in (("driver launch", 1, 6), ("driver launch, not early", 0, -1)):
            before = launches[place]
            self.assertEqual(runners[name](), 0)
            config = (ctypes.c_uint * 7).in_dll(stub, "attune_stub_config")
            self.assertEqual(
                (launches[place] - before, ctypes.c_int.in_dll(stub, "attune_stub_attribute").value, list(config)),
                (1, attribute, [8, 1, 1, 384, 1, 1, 0]))
        before = list(launches)
        self.assertFalse(runners["ctypes call, four arguments"]())
        self.assertEqual(list(launches), before)

    def test_arguments_are_as_large_as_attune_s(self):
        """Four operands of 32 bytes, three of 8, eight of 4 and a pointer."""
        body = re.search(r"struct AttentionArgs \{(.*?)\n\};", HEADER.read_text(), re.S)[1]
        sizes = {"OperandView": 32, "float*": 8, "long long": 8, "int": 4, "float": 4, "void*": 8}
        fields = re.findall(r"^  (OperandView|float\*|long long|int|float|void\*)\s+\w+;", body, re.M)
        self.assertEqual((sum(sizes[field] for field in fields), len(fields)), (driver_floor.PARAMETERS[0], 16))

    def test_the_driver_s_cost_is_subtracted(self):
        row = {
            "launcher": {"loop": 4.0, "idle": 5.0}, "driver launch": {"loop": 3.5, "idle": 4.0},
            "ctypes call, four arguments": {"loop": 0.5, "idle": 1.0}}
        self.assertEqual(python_overhead.beyond_driver(row), {
            "the driver's launch": {"loop": 3.0, "idle": 3.0}, "launcher, beyond the driver": {
                "loop": 1.0, "idle": 2.0}})
        self.assertEqual(python_overhead.beyond_driver({"launcher": {"loop": 4.0, "idle": 5.0}}), {})


if __name__ == "__main__":
    unittest.main()
