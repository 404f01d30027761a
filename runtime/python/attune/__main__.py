# SPDX-License-Identifier: Apache-2.0
"""python -m attune: prints where this installation's parts are, for builds that use them. Other arguments go to the
program `attune`.

    cmake -Dattune_DIR=$(python -m attune --cmakedir) ...
    cc $(python -m attune --cflags) ...
"""
import sys

from .core import library, program
from .core.program import nvrtc_folders

ANSWERS = {
    "--cmakedir": (program.cmake_folder, "folder of attuneConfig.cmake, for attune_DIR"),
    "--includedir": (program.include_folder, "folder that holds attune/attune.h"),
    "--pkgconfigdir": (program.pkgconfig_folder, "folder of attune.pc, for PKG_CONFIG_PATH"),
    "--library": (program.library_path, "the libattune.so that this Python uses"),
    "--program": (program.program, "the program attune that belongs to it"),
}


def usage():
    lines = [f"  {name:15} {meaning}" for name, (_, meaning) in ANSWERS.items()]
    return "\n".join([
        "python -m attune OPTION", *lines, "  --version       its version", "python -m attune COMMAND ...",
        "  as the program: doctor, tune, bench, explain, ... (--help after a command)"])


def doctor():
    """Prints the facts that only Python knows; the program prints the rest."""
    print(f"python   {sys.version.split()[0]}, attune {library.version()} in {program.library_path()}")
    print(f"python   folders that may hold NVRTC: {', '.join(nvrtc_folders()) or 'none'}")


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    if arguments[0] == "--version":
        print(library.version())
        return 0
    if arguments[0] in ANSWERS:
        if len(arguments) > 1:
            print(f"python -m attune: {arguments[1]} is one argument too many; {arguments[0]} takes none",
                  file=sys.stderr)
            return 1
        print(ANSWERS[arguments[0]][0]())
        return 0
    if arguments[0].startswith("-"):
        print(
            f"python -m attune: {arguments[0]} is not an option; must be {', '.join([*ANSWERS, '--version'])}, or "
            f"--help after a command",
            file=sys.stderr)
        return 1
    if arguments == ["doctor"]:
        doctor()
    program.run(arguments)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OSError as error:
        sys.exit(f"python -m attune: {error}")
