# SPDX-License-Identifier: Apache-2.0
# Builds for ARM64 on another machine: -DCMAKE_TOOLCHAIN_FILE=runtime/cmake/aarch64.cmake (packages crossbuild-essential-arm64,
# qemu-user-static). AARCH64_SYSROOT in the environment is a folder made by aarch64_sysroot.sh: the libraries to link, for ARM64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(attune_sysroot $ENV{AARCH64_SYSROOT})
if(NOT IS_DIRECTORY "${attune_sysroot}/usr")
  message(FATAL_ERROR "AARCH64_SYSROOT must be a folder made by runtime/cmake/aarch64_sysroot.sh, not '${attune_sysroot}'")
endif()
set(CMAKE_FIND_ROOT_PATH ${attune_sysroot})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${attune_sysroot})
set(ENV{PKG_CONFIG_LIBDIR} ${attune_sysroot}/usr/lib/aarch64-linux-gnu/pkgconfig:${attune_sysroot}/usr/share/pkgconfig)

# Programs that the build itself runs (attune_pack_templates).
find_program(attune_emulator NAMES qemu-aarch64-static qemu-aarch64)
if(attune_emulator)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${attune_emulator} -L /usr/aarch64-linux-gnu)
endif()
