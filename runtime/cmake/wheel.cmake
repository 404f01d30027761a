# SPDX-License-Identifier: Apache-2.0
# -DATTUNE_WHEEL=attune or attune-cpu: what goes into a Python wheel. All of it lies in the package's folder, finds its parts beside
# itself, and needs nothing but glibc and libgcc_s: archives are linked in where the usual build takes shared libraries. The unwinder
# alone is the process's: each copy of it knows its own library, and what the CPU target throws is caught in libattune.
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

# Licences of what is linked in, from the packages that it came with.
set(attune_linked libsqlite3-dev libsodium-dev libfmt-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libgcc-12-dev)
if(ATTUNE_WHEEL STREQUAL "attune-cpu")
  set(attune_linked libfmt-dev llvm-19-dev libclang-19-dev zlib1g-dev libzstd-dev libgcc-12-dev)
endif()
foreach(package ${attune_linked})
  if(EXISTS /usr/share/doc/${package}/copyright)
    install(FILES /usr/share/doc/${package}/copyright DESTINATION licenses RENAME ${ATTUNE_WHEEL}-${package}.txt COMPONENT cpu)
  endif()
endforeach()
