#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The present attune with what older versions left: a store, a bundle, a pin file, a C program, a Python script.

Each version has a folder; make.py made its data. A tuned kernel runs on while its template has the same revision. After
that a sentence says so. The data name a CPU of another machine; the test writes this machine's CPU in its place.

Usage: upgrade_test.py PROGRAM LIBRARY CC    Skips (status 77) without NumPy.
"""
import base64
import collections
import functools
import hashlib
import importlib.util
import json
import lzma
import os
import pathlib
import platform
import re
import sqlite3
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
VERSIONS = sorted(path.parent.name for path in HERE.glob("*/store.sql"))
SCRIPT = HERE / "0.2/script.py"  # it makes the calls that make.py tunes
SONAMES = {"0.2": "libattune.so.0"}
CHANGED = "has changed since"

Pin = collections.namedtuple("Pin", "problem device arch template digest config better")


def pins_of(version):
    lines = (HERE / version / "pin.txt").read_text().splitlines()
    return [Pin(*line.split("\t")) for line in lines[1:-1]]


def revision(digest):
    """Returns "r1." of "r1.0123". Digests of attune 0.2 have no revision, and are returned whole."""
    return digest[:digest.find(".") + 1] or digest


class Upgrade(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("ATTUNE_")}
        self.environment.update(ATTUNE_LIBRARY=LIBRARY, ATTUNE_LOCKS=folder.name, ATTUNE_STORE="")

    def run_command(self, *words, code=0, **environment):
        environment = {name: str(value) for name, value in environment.items()}
        done = subprocess.run([str(word) for word in words], env={**self.environment, **environment}, text=True,
                              capture_output=True, timeout=200, check=False)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stdout}\n{done.stderr}")
        return done

    def attune(self, *words, **environment):
        return json.loads(self.run_command(PROGRAM, *words, "--json", **environment).stdout)

    @functools.cached_property
    def device(self):
        return next(one for one in self.attune("devices")["devices"] if one["target"] == "cpu")

    @functools.cached_property
    def templates(self):
        return {one["name"]: one["digest"] for one in self.attune("version")["templates"]}

    def kept(self, pin):
        return revision(self.templates[pin.template]) == revision(pin.digest)

    def store(self, version, of_here=True):
        """Returns the path of the version's store. of_here: its rows are for this machine's CPU."""
        path = self.folder / f"store-{version}-{of_here}.db"
        with sqlite3.connect(path) as store:
            store.executescript((HERE / version / "store.sql").read_text())
            if of_here:
                facts = ("arch", "sm_count", "l2_bytes", "slice", "name")  # the others are 0 on a CPU
                store.execute(f"UPDATE device SET digest = ?, {', '.join(f'{fact} = ?' for fact in facts)}",
                              [self.device["identity"], *(self.device[fact] for fact in facts)])
                store.execute("UPDATE winner SET arch = ?", [self.device["arch"]])
        return path

    def bundle(self, version):
        """Returns the folder of the version's bundle, for this machine's CPU."""
        folder = self.folder / f"bundle-{version}"
        folder.mkdir(mode=0o700)
        self.attune("compile", "--arch", "cpu", "--problem", pins_of(version)[0].problem, "--out", folder / "own")
        options = json.loads((folder / "own/manifest.json").read_text())["kernels"][0]["options"]
        manifest = json.loads((HERE / version / "bundle.json").read_text())
        for kernel in manifest["kernels"]:
            (folder / kernel["file"]).write_bytes(lzma.decompress(base64.b64decode(kernel.pop("image"))))
            # For another CPU the source differs too. So the kernel must be found by its winner, as one of another text.
            kernel.update(arch=self.device["arch"], options=options, template_digest=kernel["template_digest"] + "0")
            for winner in kernel["winners"]:
                winner.update(device=self.device["name"], threads=self.device["threads"])
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    def pin_file(self, version, change=lambda digest: digest):
        """Returns the path of the version's pins, for this machine's CPU. change: of the template's digest."""
        pins = (pin._replace(device=self.device["identity"], arch=self.device["arch"], digest=change(pin.digest))
                for pin in pins_of(version))
        text = "attune pin 1\n" + "".join(sorted("\t".join(pin) + "\n" for pin in pins))
        path = self.folder / f"{version}.pin"
        path.write_text(f"{text}sha256 {hashlib.sha256(text.encode()).hexdigest()}\n")
        return path

    def check_choices(self, version, rung, kept=None, other_text=False, **environment):
        """Checks which kernels explain names for the version's problems. kept: None: as the revisions say."""
        for pin in pins_of(version):
            found = self.attune("explain", "--target", "cpu", "--problem", pin.problem, **environment)
            told = [sentence for sentence in found["passed_over"] if CHANGED in sentence]
            if self.kept(pin) if kept is None else kept:
                self.assertEqual((found["rung"], found["config"], told), (rung, pin.config, []))
                is_old = other_text or pin.digest != self.templates[pin.template]
                self.assertEqual("timed with another text" in found["why"], is_old, found["why"])
            else:
                self.assertEqual((found["rung"], len(told)), ("default_config", 1), found["passed_over"])
                self.assertIn(f"({pin.template}): the template {CHANGED}; tune again", told[0])

    def run_script(self, version, rung, source="", **environment):
        """Runs the script, which checks its results. Checks which kernels it ran."""
        plans = self.run_command(sys.executable, SCRIPT, **environment).stdout.splitlines()
        for pin, plan in zip(pins_of(version), map(json.loads, plans), strict=True):
            self.assertEqual(plan["template"], pin.template)
            self.assertEqual(plan["rung"], rung if self.kept(pin) else "default_config", plan["text"])
            self.assertIn(source, plan["text"])

    def test_each_release_has_a_folder(self):
        released = re.findall(r"^## (\d+\.\d+)\.\d+, ", (HERE.parents[1] / "CHANGELOG.md").read_text(), re.M)
        self.assertLessEqual({"0.2", *released}, set(VERSIONS))

    def test_a_store_is_read_whole(self):
        for version in VERSIONS:
            done = self.run_command(PROGRAM, "db", "ls", "--store", self.store(version, of_here=False), "--json")
            self.assertEqual(done.stderr, "")  # a row that cannot be read is left out with a warning
            listed = {(one["problem"], one["config"]) for one in json.loads(done.stdout)["winners"]}
            self.assertEqual(listed, {(pin.problem, pin.config) for pin in pins_of(version)})

    def test_a_store_serves_while_revisions_stay(self):
        for version in VERSIONS:
            with self.subTest(version):
                store = self.store(version)
                self.check_choices(version, "exact", ATTUNE_STORE=store)
                self.run_script(version, "exact", ATTUNE_STORE=store)
                for pin in [pin for pin in pins_of(version) if not self.kept(pin)][-1:]:  # as CHANGELOG says
                    about = ("--target", "cpu", "--problem", pin.problem)
                    self.attune("tune", *about, "--effort", "quick", ATTUNE_STORE=store)
                    self.assertEqual(self.attune("explain", *about, ATTUNE_STORE=store)["rung"], "exact")

    def test_another_revision_makes_a_store_stale_and_another_text_does_not(self):
        version, lines = VERSIONS[-1], self.folder / "rows.jsonl"
        self.attune("db", "export", lines, "--store", self.store(version))
        head, *rows = map(json.loads, lines.read_text().splitlines())
        for kept in (True, False):
            for toolchain in (row["toolchain"] for row in rows):
                toolchain["template_digest"] = f"{revision(self.templates[toolchain['template']]) if kept else 'r0.'}0"
            lines.write_text("".join(json.dumps(row) + "\n" for row in (head, *rows)))
            store = self.folder / f"{kept}.db"
            self.attune("db", "import", lines, "--store", store)
            self.check_choices(version, "exact", kept, other_text=True, ATTUNE_STORE=store)

    @unittest.skipUnless(platform.machine() == "x86_64", "the bundles hold x86-64 code")
    def test_a_bundle_runs_while_revisions_stay(self):
        for version in VERSIONS:
            with self.subTest(version):
                bundle = self.bundle(version)
                self.check_choices(version, "exact", other_text=True, ATTUNE_BUNDLE=bundle)
                alone = {"ATTUNE_BUNDLE": bundle, "ATTUNE_NO_JIT": 1}
                if all(map(self.kept, pins_of(version))):
                    self.run_script(version, "exact", "image      from the bundle", **alone)
                else:
                    refused = self.run_command(sys.executable, SCRIPT, code=1, **alone).stderr.splitlines()[-1]
                    self.assertRegex(refused, "no image of .* compiling is not allowed")

    def test_pins_hold_while_revisions_stay(self):
        for version in VERSIONS:
            with self.subTest(version):
                pins, kept = pins_of(version), [self.kept(pin) for pin in pins_of(version)]
                done = self.run_command(PROGRAM, "pin", "--check", HERE / version / "pin.txt", "--target", "cpu",
                                        code=0 if all(kept) else 5)
                self.assertIn(f"{len(pins)} pins", done.stdout)
                self.assertEqual(done.stdout.count(CHANGED), kept.count(False), done.stdout)
                if all(kept):
                    self.check_choices(version, "pinned", ATTUNE_PIN=self.pin_file(version))
                    self.run_script(version, "pinned", ATTUNE_PIN=self.pin_file(version))
                changed = self.pin_file(version, lambda digest: f"r0.{digest}")
                done = self.run_command(PROGRAM, "explain", "--target", "cpu", "--problem", pins[0].problem, code=2,
                                        ATTUNE_PIN=changed)
                self.assertIn(f"which {CHANGED}: tune and pin again with this version", done.stderr)

    def test_a_c_program_runs_or_is_told(self):
        present = re.search(r"SONAME.*\[(.*)\]", self.run_command("readelf", "-d", LIBRARY).stdout).group(1)
        for version, soname in SONAMES.items():
            (libraries := self.folder / version).mkdir()
            header = next((HERE / version).glob("*.h")).read_text()
            functions = set(re.findall(r"^\w[^#\n]*?\b(attune_\w+)\(", header, re.M))
            stub, source, program = (libraries / name for name in (soname, "stub.c", "program"))
            source.write_text("".join(f"void {name}(void) {{}}\n" for name in functions))
            self.run_command(CC, "-shared", "-fPIC", f"-Wl,-soname,{soname}", source, "-o", stub)
            self.run_command(CC, "-std=c11", "-O1", HERE / version / "program.c", stub, "-lm", "-o", program)
            stub.unlink()
            (libraries / present).symlink_to(LIBRARY)
            if soname != present:
                done = self.run_command(program, code=127, LD_LIBRARY_PATH=libraries)
                self.assertIn(f"{soname}: cannot open shared object file", done.stderr)
                stub.symlink_to(LIBRARY)  # a user may try that
                done = self.run_command(program, code=1, LD_LIBRARY_PATH=libraries)
                self.assertIn(f"attune {version}", done.stderr)
            else:
                done = self.run_command(program, LD_LIBRARY_PATH=libraries)
                self.assertRegex(done.stdout, "^prefill_cpu differs by")

    def test_a_python_script_runs_with_warnings_of_deprecation_alone(self):
        for script in HERE.glob("*/script.py"):
            done = self.run_command(sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", script,
                                    self.folder / "tuned.db")
            rungs = [json.loads(line)["rung"] for line in done.stdout.splitlines()]
            self.assertEqual((rungs, done.stderr), (["default_config", "default_config", "exact"], ""))


if __name__ == "__main__":
    PROGRAM, LIBRARY, CC = sys.argv[1:4]
    if importlib.util.find_spec("numpy") is None:
        print("SKIP: there is no NumPy here")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
