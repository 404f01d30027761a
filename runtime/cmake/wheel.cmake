# SPDX-License-Identifier: Apache-2.0
# -DATTUNE_WHEEL=attune or attune-cpu: what goes into a Python wheel. All of it lies in the package's folder, finds its parts beside
# itself, and needs nothing but glibc: archives are linked in where the usual build takes shared libraries.
set(CMAKE_INSTALL_LIBDIR .)
set(CMAKE_INSTALL_BINDIR .)
set(CMAKE_INSTALL_INCLUDEDIR include)
set(CMAKE_INSTALL_RPATH "$ORIGIN")
add_link_options(-static-libstdc++ -static-libgcc -Wl,--gc-sections)
find_library(SQLite3_LIBRARY NAMES libsqlite3.a REQUIRED)
link_libraries(${CMAKE_DL_LIBS} m)  # SQLite's
foreach(library z zstd)             # LLVM's
  find_library(attune_static_${library} NAMES lib${library}.a)
endforeach()
