#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes LICENSES.txt and SHA256SUMS beside the wheels of a release. Called by wheels.sh.
    release_files.py FOLDER

LICENSES.txt lists the packages whose code is inside each wheel, with version, licence and the text of their copyright
file, as the wheel has it (runtime/cmake/wheel.cmake puts it there). `sha256sum --check SHA256SUMS` checks the files."""
import hashlib
import pathlib
import re
import subprocess
import sys
import zipfile

_LICENSE_FILE = re.compile(r"attune/licenses/attune(?:-cpu)?-(?P<package>[a-z0-9.+-]+)\.txt")


def main_licence(text):
    """Returns the licence that a Debian copyright file gives to `Files: *`, or "see the text" if it has no such part.
    """
    for paragraph in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^(Files|License):[ \t]*(.*)$", paragraph, re.MULTILINE))
        if fields.get("Files", "").split()[:1] == ["*"] and fields.get("License"):
            return fields["License"].strip()
    return "GPL-3 with GCC Runtime Library Exception" if "GCC RUNTIME LIBRARY EXCEPTION" in text.upper(
    ) else "see the text"


def version_of(package):
    """Returns the version of an installed Debian package; "" where dpkg does not know it."""
    try:
        return subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True,
                              check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def bundled(wheel):
    """Returns pairs of a package inside the wheel and the text of its copyright file."""
    with zipfile.ZipFile(wheel) as archive:
        found = [(match["package"], archive.read(name).decode(errors="replace")) for name in sorted(archive.namelist())
                 if (match := _LICENSE_FILE.fullmatch(name))]
    if not found:
        raise SystemExit(f"{wheel}: it has no attune/licenses/*.txt; must be a wheel of wheels.sh")
    return found


def licences_text(wheels):
    lines = ["Licences of the code inside the wheels of attune. attune itself has the licence Apache-2.0.", ""]
    texts = {}
    for wheel in wheels:
        lines.append(wheel.name)
        for package, text in bundled(wheel):
            texts[package] = text
            lines.append(f"  {f'{package} {version_of(package)}'.strip():45} {main_licence(text)}")
        lines.append("")
    for package, text in sorted(texts.items()):
        lines += ["=" * 80, package, "=" * 80, text.rstrip(), ""]
    return "\n".join(lines)


def main(folder):
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise SystemExit(f"{folder}: no wheel is there; must be a folder that wheels.sh filled")
    (folder / "LICENSES.txt").write_text(licences_text(wheels))
    files = [*wheels, *sorted(folder.glob("*.tar.gz")), folder / "LICENSES.txt"]
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: release_files.py FOLDER")
    main(pathlib.Path(sys.argv[1]))
