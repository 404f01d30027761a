#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the check_*.py scripts: each must find the offence it is there for, and must not cry wolf. Run by CTest."""
import pathlib
import tempfile
import unittest

import check_conditions
import check_format
import check_layers
import check_repo
import check_sizes
import check_words
import check_tidy
import check_variables


class Conditions(unittest.TestCase):
    TEXT = """#include "a.cuh"  // where kA
// Text about it, where keys begin.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attune_kernel(const __grid_constant__ Args args,  // where kArgs
                  const __grid_constant__ Args a,     // unless kA
                  const __grid_constant__ Args b) {   // where kB == 1
  call(a);  // where kA
  // Calls.  // where kB unless kA
#if 1       // where kA
"""

    def test_conditions_stand_on_includes_and_parameters(self):
        self.assertEqual(check_conditions.places(self.TEXT),
                         {"conditions": [1, 4, 5, 6, 7, 8, 9], "misplaced": [4, 6, 7, 8, 9], "directives": [9]})


class Format(unittest.TestCase):
    @unittest.skipIf(check_format.formatter() is None, "clang-format 14 is not installed")
    def test_a_line_out_of_order_is_found(self):
        with tempfile.TemporaryDirectory(dir=check_repo.ROOT / "tests") as folder:  # .clang-format stands above
            file = pathlib.Path(folder) / "a.cpp"
            file.write_text("int  x ;\n")
            self.assertTrue(check_format.unclean(check_format.formatter(), [str(file)]))
            file.write_text("int x;\n")
            self.assertEqual(check_format.unclean(check_format.formatter(), [str(file)]), [])


class Layers(unittest.TestCase):
    def test_arrows(self):
        allowed = check_layers.allowed
        self.assertTrue(allowed("runtime", "runtime/engine/engine.cpp", '"', "cache/store.hpp"))
        self.assertFalse(allowed("cache", "cache/store.cpp", '"', "runtime/engine/engine.hpp"))
        config = "generator/core/problem/config.cpp"
        self.assertFalse(allowed("generator/core", config, '"', "generator/render/renderer.hpp"))
        self.assertFalse(allowed("runtime", "runtime/engine/engine.cpp", '"', "tuner/tune.hpp"))
        self.assertFalse(allowed("examples", "examples/prefill.c", '"', "runtime/engine/engine.hpp"))
        self.assertFalse(allowed("generator", "generator/render/renderer.cpp", '"', "templates/cuda/ptx/mma.cuh"))

    def test_templates_take_no_system_header(self):
        self.assertFalse(check_layers.allowed("templates", "templates/cuda/a.cu", "<", "cuda_fp16.h"))
        self.assertTrue(check_layers.allowed("templates", "templates/cuda/a.cu", '"', "cuda/ptx/mma.cuh"))

    @staticmethod
    def rooms(**changed):
        """Returns the offences of a small package with some of its files changed. A name's _ is a / of the path."""
        texts = {"core/a.py": "import ctypes", "ops/b.py": "from ..core.a import x", "flex.py": "from .ops import b"}
        texts.update({f"{name.replace('_', '/')}.py": text for name, text in changed.items()})
        return list(check_layers.python_offences({"__init__.py": "from . import flex", **texts}))

    def test_imports_go_down_the_rooms(self):
        self.assertEqual(self.rooms(), [])
        self.assertEqual(self.rooms(torch_c="import torch\nfrom ..ops import b\nimport attune.core.a"), [])
        up = "runtime/python/attune/core/a.py:1: core may not import ops.b of ops"
        for text in ("from ..ops import b", "from ..ops.b import f", "import attune.ops.b", "from attune.ops import b",
                     "import_module('..ops.b', __package__)", "import_module('attune.ops.b')"):
            self.assertEqual(self.rooms(core_a=text, ops_b="")[:1], [up], text)
        self.assertEqual(self.rooms(core_a="def f():\n    from ..ops.b import g\n", ops_b=""),
                         [up.replace(":1:", ":2:")])
        for text in ("from .. import Context", "import attune"):
            self.assertIn("core may not import attune of attune", self.rooms(core_a=text)[0])
        self.assertIn("ops may not import flex of adapters", self.rooms(ops_b="from .. import flex", flex="")[0])
        self.assertIn("other has no room", self.rooms(other="")[0])

    def test_a_circle_of_imports_is_found(self):
        self.assertEqual(self.rooms(core_c="from . import d", core_d="def f():\n    from .e import x", core_e=""), [])
        self.assertEqual(
            self.rooms(core_c="from . import d", core_d="def f():\n    from .e import x", core_e="from .c import y"),
            ["runtime/python/attune: a circle of imports: core.c -> core.d -> core.e -> core.c"])


class Sizes(unittest.TestCase):
    @staticmethod
    def body(lines):
        head = "namespace a {\nstruct S {\n  int f(int x) const {\n"
        return head + "    x += 1;\n" * lines + "    return x;\n  }\n};\n}\n"

    def test_long_function_is_found(self):
        self.assertEqual([key for key, *_ in check_sizes.oversized("generator/a.cpp", self.body(70))],
                         ["generator/a.cpp:f"])
        self.assertEqual(list(check_sizes.oversized("generator/a.cpp", self.body(50))), [])

    def test_braces_in_literals_and_lambdas_do_not_count(self):
        text = 'void f() {\n  g("{", \'{\', [&] { h(); });  // {\n}\nvoid k(\n    int x) {\n  return;\n}\n'
        self.assertEqual([(name, size) for name, _, size, _ in check_sizes.functions(text)], [("f", 3), ("k", 4)])

    def test_kernels_have_their_own_limit(self):
        text = 'extern "C" __global__ void __launch_bounds__(128) attune_kernel(int x) {\n' + "x;\n" * 100 + "}\n"
        self.assertEqual(list(check_sizes.oversized("templates/cuda/a.cu", text)), [])

    def test_long_file_is_found(self):
        self.assertEqual(len(list(check_sizes.oversized("tuner/a.cpp", "int x;\n" * 601))), 1)
        self.assertEqual(len(list(check_sizes.oversized("examples/a.c", "int x;\n" * 81))), 1)

    def test_crowded_folders_and_entries_without_need_are_found(self):
        paths = [f"tuner/{i}.cpp" for i in range(41)] + [f"tuner/cli/{i}.cpp" for i in range(40)]
        self.assertEqual(list(check_sizes.crowded(paths, {})), ["tuner: 41 files, at most 40"])
        self.assertEqual(list(check_sizes.crowded(paths, {"tuner": (41, "")})), [])
        self.assertEqual(len(list(check_sizes.crowded(paths, {"tuner": (42, ""), "tuner/cli": (40, "")}))), 2)

    def test_too_many_short_files(self):
        whole = [(f"tuner/{i}.cpp", 30) for i in range(92)]
        short = [(f"runtime/python/{i}.py", 29) for i in range(8)]
        ignored = [("templates/cuda/none/a.cuh", 5), ("tests/a.cpp", 5), ("tuner/README.md", 5), ("CMakeLists.txt", 5)]
        said, found, too_many = check_sizes.crumbs(whole + short + ignored)
        self.assertEqual((said, found, too_many), ("8 of 100 product files (8.0%) have under 30 lines, at most 8%",
                                                   [path for path, _ in short], False))
        self.assertTrue(check_sizes.crumbs(whole[1:] + short + [("cache/a.hpp", 1)])[2])

    def test_totals_over_their_budget_are_found(self):
        sizes = [("tuner/a.cpp", 10), ("tests/a_test.cpp", 20), ("tests/a.json", 30), ("tests/golden/a.cu", 1),
                 ("tests/bench/results/b.json", 99), ("tuner/README.md", 99), ("README.md", 99)]
        self.assertEqual(list(check_sizes.over_budget(sizes, {"product": 10, "tests": 20, "data": 31})), [])
        self.assertEqual(
            list(check_sizes.over_budget(sizes, {"product": 9, "tests": 19, "data": 30})),
            ["product: 10 lines in all, at most 9", "tests: 20 lines in all, at most 19",
             "data: 31 lines in all, at most 30"])


class Words(unittest.TestCase):

    def test_fragments_are_found_in_comments_and_docstrings(self):
        lines = [
            "int a;  // Of b", "// Returns a.", "// What it is.", "/* Of a block", " * What goes on */", "",
            "// Whether."]
        opening = [(i, bool(check_words.FRAGMENT.match(text))) for i, text in check_words.cpp_blocks(lines)]
        self.assertEqual(opening, [(2, False), (7, True)])
        text = '"""Of a module."""\nx = 1  # What\n# Returns x.\n# Where.\n\n# The same.\n'
        opening = [(i, bool(check_words.FRAGMENT.match(words))) for i, words in check_words.python_blocks(text)]
        self.assertEqual(sorted(opening), [(1, True), (3, False), (6, True)])

    def test_long_sentences_leave_out_code_tables_and_links(self):
        text = "one two.\n\n```\n" + "x " * 50 + "\n```\n| " + "y " * 50 + "|\n" + "w " * 40 + "end.\n"
        self.assertEqual([count for _, count in check_words.sentences(text) if count > 35], [41])


class Repo(unittest.TestCase):
    GOOD = "// SPDX-License-Identifier: Apache-2.0\n// What this is.\n"

    def found(self, path, text):
        return [what for _, what in check_repo.check_source(path, text)]

    def test_licence_line(self):
        self.assertTrue(self.found("tuner/a.cpp", "int x;\n"))
        self.assertEqual(self.found("tuner/a.cpp", self.GOOD), [])

    def test_header(self):
        licence = self.GOOD.splitlines()[0] + "\n"
        for body in ("int x;\nint y;\n", "#include <string>\n#include <vector>\n", "#pragma once\n\n#define A b c d\n",
                     "//\n// x\n"):
            self.assertEqual(self.found("tuner/a.cpp", licence + body), ["no header that says what this file is"], body)
        self.assertEqual(
            self.found("tests/a.py", "#!/usr/bin/env python3\n" + licence.replace("//", "#") + "import sys\n"),
            ["no header that says what this file is"])
        self.assertEqual(self.found("tests/a.py", licence.replace("//", "#") + '"""What this file is."""\n'), [])
        self.assertEqual(
            self.found("tests/a.sh", "#!/bin/bash\n" + licence.replace("//", "#") + "# What this file is.\n"), [])

    def test_assembly_has_one_home(self):
        line = 'asm volatile("bar.sync 0;");\n'
        self.assertTrue(self.found("templates/cuda/parts/mask.cuh", self.GOOD + line))
        self.assertEqual(self.found("templates/cuda/ptx/barrier.cuh", self.GOOD + line), [])
        self.assertEqual(self.found("templates/cuda/parts/mask.cuh", self.GOOD + "// " + line), [])

    def test_foreign_headers(self):
        self.assertTrue(self.found("cache/store.hpp", self.GOOD + "#include <sqlite3.h>\n"))
        self.assertTrue(self.found("runtime/engine/engine.cpp", self.GOOD + "#include <llvm/IR/Module.h>\n"))
        self.assertEqual(self.found("cache/sqlite.cpp", self.GOOD + "#include <sqlite3.h>\n"), [])

    def test_ops_are_named_at_home(self):
        line = "if (problem.op == Op::kPrefill) return;\n"
        self.assertTrue(self.found("runtime/engine/plan.cpp", self.GOOD + line))
        self.assertEqual(self.found("tuner/oracles/attention.cpp", self.GOOD + line), [])

    def test_paths_of_a_machine(self):
        self.assertTrue(self.found("tests/a.py", self.GOOD + 'x = "' + "/ro" + 'ot/store.db"\n'))

    def test_a_version_that_was_left_behind(self):
        def read(path):
            return (check_repo.ROOT / path).read_text()
        self.assertEqual(list(check_repo.check_versions(read)), [])
        version = check_repo.re.search(r"attune VERSION ([0-9.]+)", read("CMakeLists.txt")).group(1)
        for behind in check_repo.VERSIONS:
            found = list(
                check_repo.check_versions(lambda path: read(path).replace(version, "0.0.9", 1
                                                                          if path == behind else 0)))
            self.assertEqual([line.split(":")[0] for line in found], [behind], behind)

    def test_a_library_that_nothing_installs(self):
        def found(text, packages="libfmt-dev"):
            files = {
                "CMakeLists.txt": text, "examples/packages.sh": f'attune_build_packages="build-essential {packages}"\n'}
            return list(check_repo.check_packages(files.get, ["CMakeLists.txt"]))
        self.assertEqual(found("find_package(fmt REQUIRED)\nfind_package(Threads REQUIRED)\n"), [])
        self.assertEqual(len(found("  pkg_check_modules(libsodium REQUIRED IMPORTED_TARGET libsodium)\n")), 1)
        self.assertEqual(found("pkg_check_modules(libsodium REQUIRED)\n", "libfmt-dev libsodium-dev"), [])
        self.assertEqual(len(found("find_package(OpenSSL REQUIRED)\n")), 1)


class Tidy(unittest.TestCase):
    @unittest.skipIf(check_tidy.tidy_program() is None, "clang-tidy is not installed")
    def test_a_needless_copy_is_found(self):
        with tempfile.TemporaryDirectory(dir=check_repo.ROOT / "tests") as folder:  # .clang-tidy stands above
            file = pathlib.Path(folder) / "a.cpp"
            file.write_text("struct S { S(const S&); ~S(); int x; };\nint f(S s) { return s.x; }\n")
            self.assertIn("unnecessary-value-param", check_tidy.findings(check_tidy.tidy_program(), str(file)))
            file.write_text("int f(int x) { return x; }\n")
            self.assertEqual(check_tidy.findings(check_tidy.tidy_program(), str(file)), "")
            file.write_text("#include <no_such_file>\n")
            self.assertIn("no_such_file", check_tidy.findings(check_tidy.tidy_program(), str(file)))

    def test_changed_files_come_first_and_each_comes_once(self):
        paths = [f"tuner/{i}.cpp" for i in range(20)]
        order = check_tidy.ordered(paths, {"tuner/13.cpp"})
        self.assertEqual(order[:3], ["tuner/13.cpp", "tuner/0.cpp", "tuner/7.cpp"])
        self.assertEqual(sorted(order), sorted(paths))

    def test_there_are_files_to_look_at(self):
        self.assertGreater(len(check_tidy.sources()), 150)


class Variables(unittest.TestCase):
    def test_reads_are_found_in_each_language(self):
        read = check_variables.variables_read
        for path, text in (("runtime/a.cpp", 'flag("ATTUNE_A")'), ("runtime/a.cpp", 'std::getenv("ATTUNE_A")'),
                           ("tuner/a.cpp", 'for (const char* name : {"ATTUNE_A"}) environment_variable(name);'),
                           ("tests/a.py", 'os.environ.get("ATTUNE_A", "1")'), ("tests/a.py", 'os.environ["ATTUNE_A"]'),
                           ("tests/a.sh", 'x=${ATTUNE_A:-1}'), ("tests/a.bats", 'run "$ATTUNE_A"')):
            self.assertEqual(read(path, text), {"ATTUNE_A"}, text)
        self.assertEqual(read("runtime/a.cpp", 'log("ATTUNE_A is set")'), set())

    def test_rows_of_the_table(self):
        table = "| variable | read by |\n|---|---|\n| `ATTUNE_A`, `HOME` | `ATTUNE_B` |\n\n| `ATTUNE_C` | x |\n"
        self.assertEqual(check_variables.variables_listed(table), {"ATTUNE_A", "HOME"})

    def test_files_that_are_not_there(self):
        text = "`tuner/a.cpp`\n`tuner/b.cpp` and `tuner/`\n[c](c.md)\n[rules](CONTRIBUTING.md)\n"
        self.assertEqual(list(check_variables.missing_files("a.md", text, {"tuner", "tuner/a.cpp"})),
                         [(2, "tuner/b.cpp"), (3, "c.md")])


if __name__ == "__main__":
    unittest.main()
