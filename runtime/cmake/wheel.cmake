# SPDX-License-Identifier: Apache-2.0
# -DATTUNE_WHEEL=attune or attune-cpu: the contents of a Python wheel. All files are in the package's folder and find each other
# there. They need only glibc and libgcc_s: archives are linked in place of shared libraries. Only the unwinder is shared with the
# process: a copy would know only its own library, and exceptions of the CPU target are caught in libattune.
set(CMAKE_INSTALL_LIBDIR .)
set(CMAKE_INSTALL_FULL_LIBDIR ${CMAKE_INSTALL_PREFIX})
set(CMAKE_INSTALL_BINDIR .)
set(CMAKE_INSTALL_INCLUDEDIR include)
set(CMAKE_INSTALL_RPATH "$ORIGIN")
add_link_options(-static-libstdc++ -Wl,--gc-sections,--allow-shlib-undefined)
find_library(SQLite3_LIBRARY NAMES libsqlite3.a REQUIRED)
link_libraries(${CMAKE_DL_LIBS} m)  # SQLite's
foreach(library z zstd)             # LLVM's
  find_library(attune_static_${library} NAMES lib${library}.a)
endforeach()

# The licences of the linked archives, from their packages; a cross build has them in its sysroot (aarch64.cmake).
set(attune_linked libsqlite3-dev libsodium-dev libfmt-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libgcc-12-dev)
if(ATTUNE_WHEEL STREQUAL "attune-cpu")
  set(attune_linked libfmt-dev llvm-19-dev libclang-19-dev zlib1g-dev libzstd-dev libgcc-12-dev)
endif()
foreach(package ${attune_linked})
  if(EXISTS ${attune_sysroot}/usr/share/doc/${package}/copyright)
    install(FILES ${attune_sysroot}/usr/share/doc/${package}/copyright DESTINATION licenses RENAME ${ATTUNE_WHEEL}-${package}.txt COMPONENT cpu)
  endif()
endforeach()
