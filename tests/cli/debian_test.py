#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian packages of a build tree: packed by CPack, installed by dpkg into a root that holds nothing else but what
they depend on (files of this machine's packages), and used there. Skips (77) where dpkg, root rights or a dependency
are missing. Run by CTest.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = {"libattune2", "libattune-dev", "attune-tools", "python3-attune"}  # libattune-cpu too, where it is built
ESSENTIAL = {"dash", "libc-bin", "coreutils"}  # which every Debian has: a shell, ldconfig, env


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(77)


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def pack(build, folder):
    """Returns {package: its file}."""
    run("cpack", "-G", "DEB", "-B", folder, cwd=build)
    return {run("dpkg-deb", "-f", deb, "Package").strip(): deb for deb in sorted(folder.glob("*.deb"))}


def names(depends):
    """Returns the package names in a field such as Depends, with all alternatives."""
    return [re.sub(r"[ (:].*", "", word.strip()) for word in re.split(r"[,|]", depends) if word.strip()]


def installed(package):
    """Returns (status, dependencies) of a package of this machine."""
    form = "${db:Status-Status}\\t${Depends}, ${Pre-Depends}\\n"
    done = subprocess.run(["dpkg-query", "-W", "-f", form, package], capture_output=True, text=True)
    return done.stdout.splitlines()[0].split("\t") if done.returncode == 0 and done.stdout else ("", "")


def closure(depends):
    """Returns the packages of this machine that these names need, and the names that are not installed."""
    todo, found, missing = list(depends), set(), []
    while todo:
        package = todo.pop()
        if package in found:
            continue
        status, needs = installed(package)
        if status != "installed":
            missing.append(package)
            continue
        found.add(package)
        todo += names(needs)
    return found, [package for package in missing if package in depends]


def copy_files(packages, root):
    for package in sorted(packages):
        for line in run("dpkg-query", "-L", package).splitlines():
            source = pathlib.Path(line)
            real = source.resolve() if source.is_dir() else source.parent.resolve() / source.name
            target = root / real.relative_to("/")
            if source.is_symlink() and not source.is_dir():
                if not target.is_symlink():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.symlink_to(os.readlink(source))
            elif source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            elif source.is_file() and "/share/doc/" not in line and "/share/locale/" not in line:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
    for name in ("bin", "sbin", "lib", "lib64"):  # as this machine has them
        if pathlib.Path("/", name).is_symlink() and not (root / name).exists():
            (root / "usr" / name).mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(os.readlink(pathlib.Path("/", name)))


def bare_root(debs, root):
    depends = {name for deb in debs.values() for name in names(run("dpkg-deb", "-f", deb, "Depends"))} - set(debs)
    depends |= ESSENTIAL
    packages, missing = closure(depends)
    if missing:
        skip(f"this machine lacks {', '.join(missing)}")
    copy_files(packages, root)
    database = root / "var/lib/dpkg"
    for folder in ("info", "updates", "triggers"):
        (database / folder).mkdir(parents=True, exist_ok=True)
    # Packages that are installed, as dpkg knows them, so that it checks each dependency itself, with its version.
    for package in packages:
        (database / "info" / f"{package}.list").touch()
    status = "".join(run("dpkg-query", "-s", package) + "\n" for package in sorted(packages))
    (database / "status").write_text(status)
    return packages


def install(debs, root):
    run("dpkg", f"--root={root}", "--force-not-root", "-i", *debs.values())
    listed = run("dpkg", f"--root={root}", "-l", *debs)
    for package in debs:
        if not re.search(rf"^ii +{re.escape(package)}[: ]", listed, re.M):
            sys.exit(f"{package} is not installed:\n{listed}")


def check_files(debs):
    """Checks that each file is in one package, belongs to root and is writable by root alone, and that the main files
    exist."""
    owner = {}
    for package, deb in debs.items():
        for line in run("dpkg-deb", "-c", deb).splitlines():
            mode, user, _, _, _, path = line.split(maxsplit=5)
            if user != "root/root" or (mode[0] != "l" and "w" in mode[5:]):
                sys.exit(f"{package}: {line}")
            if mode[0] != "d" and owner.setdefault(path.split(" -> ")[0], package) != package:
                sys.exit(f"{path} is in {package} and {owner[path]}")
    for path in ("./usr/bin/attune", "./usr/lib/libattune.so", "./usr/include/attune/attune.h",
                 "./usr/lib/pkgconfig/attune.pc"):
        if path not in owner:
            sys.exit(f"no package has {path}")


def use(root, build, cc):
    def inside(*command):
        return run("chroot", root, "/usr/bin/env", "-i", "HOME=/root", "PATH=/usr/bin:/bin", "ATTUNE_STORE=", *command)

    version = inside("attune", "version")
    print(version.splitlines()[0])
    environment = {**os.environ, "PKG_CONFIG_LIBDIR": f"{root}/usr/lib/pkgconfig"}
    flags = run("pkg-config", "--cflags", "--libs", "attune", env=environment).split()
    source = pathlib.Path(root, "example.c")
    source.write_text(
        '#include <attune/attune.h>\n#include <stdio.h>\nint main(void) { attune_problem p; attune_status s ='
        ' attune_problem_parse("dtype=bf16,head_dim=64,heads=2,seqlen=64", &p);\n'
        'return puts(attune_version()) < 0 || s != ATTUNE_OK || p.head_dim_v != 64; }\n')
    run(cc, "-std=c11", source, *flags, "-o", root / "example")
    if "libattune.so.2" not in run("readelf", "-d", root / "example"):
        sys.exit("the C program does not need libattune.so.2")
    number = inside("/example").strip()
    in_python = inside("python3", "-c", "import attune; from attune.core import library as found; "
                                        "print(attune.__version__, found.LIBRARY_PATH.rpartition('/')[2])")
    print(f"C: {number}; Python: {in_python.strip()}")
    if number not in version or in_python.split() != [number, "libattune.so.2"]:
        sys.exit("program, library and Python module have different versions")
    return inside


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--cc", required=True)
    arguments = parser.parse_args()
    for tool in ("cpack", "dpkg-deb", "dpkg", "dpkg-shlibdeps", "chroot", "pkg-config"):
        if not shutil.which(tool):
            skip(f"there is no {tool}")
    if os.geteuid() != 0:
        skip("chroot needs root")
    with tempfile.TemporaryDirectory() as folder:
        debs = pack(arguments.build, pathlib.Path(folder, "packages"))
        if set(debs) - {"libattune-cpu"} != PACKAGES:
            sys.exit(f"the packages are {sorted(debs)}")
        check_files(debs)
        root = pathlib.Path(folder, "root")
        root.mkdir()
        packages = bare_root(debs, root)
        install(debs, root)
        print(f"{', '.join(sorted(debs))}: installed over {len(packages)} packages that they need")
        inside = use(root, arguments.build, arguments.cc)
        if "libattune-cpu" in debs:
            inside("attune", "check", "--target", "cpu", "--problem", "dtype=fp32,head_dim=64,heads=2,seqlen=33",
                   "--sample", "1")
            print("a kernel for the CPU compiles and runs there")
        run("dpkg", f"--root={root}", "--purge", *debs)
        left = [str(path) for path in (root / "usr").rglob("*attune*") if path.is_file()]
        if left:
            sys.exit(f"purging leaves {left}")


if __name__ == "__main__":
    main()
