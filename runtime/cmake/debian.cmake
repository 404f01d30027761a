# SPDX-License-Identifier: Apache-2.0
# Debian packages of a build tree: `cpack -G DEB`. Configure with -DCMAKE_INSTALL_PREFIX=/usr, so that the site's store is searched
# in /etc/attune. Each component of the install rules is a package; files without a component (share/attune/python) are left out.
set(attune_debian_python lib/python3/dist-packages)  # Debian's python3 of any version
install(DIRECTORY ${PROJECT_SOURCE_DIR}/runtime/python/attune DESTINATION ${attune_debian_python} COMPONENT python EXCLUDE_FROM_ALL
        FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
if(TARGET attune_python)
  install(FILES $<TARGET_FILE:attune_python> DESTINATION ${attune_debian_python}/attune COMPONENT python EXCLUDE_FROM_ALL)
endif()

set(CPACK_COMPONENTS_ALL runtime dev tools python)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libattune${ATTUNE_ABI_VERSION})
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libattune-dev)
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME attune-tools)
set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-attune)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
if(TARGET attune_clang)  # a separate package: it brings LLVM and clang
  list(APPEND CPACK_COMPONENTS_ALL cpu)
  set(CPACK_DEBIAN_CPU_PACKAGE_NAME libattune-cpu)
  set(CPACK_DEBIAN_CPU_PACKAGE_SECTION libs)
endif()
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME} RENAME copyright
          COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()
# All packages must have the same version: the plugin and the Python module use the inside of the library.
set(attune_library "libattune${ATTUNE_ABI_VERSION} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${attune_library}")
set(CPACK_DEBIAN_CPU_PACKAGE_DEPENDS "${attune_library}")
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "${attune_library}, python3 (>= 3.10)")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS "attune-tools, python3-numpy")
set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS "libattune-cpu")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "libattune-cpu")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "libzstd1")  # for bundles with packed images
# dpkg finds the packages of the libraries that are needed, and writes the version that other programs must depend on.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_STRIP_FILES ON)

set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_CONTACT "The attune project")
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "Runs tuned attention kernels on NVIDIA GPUs, which need the driver alone, and on CPUs.")
set(CPACK_COMPONENT_DEV_DESCRIPTION "C and C++ headers, the CMake package and the pkg-config file of libattune.")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "The program attune tunes, checks, measures, exports and explains kernels.")
set(CPACK_COMPONENT_PYTHON_DESCRIPTION "Calls libattune from Python 3, on NumPy's arrays and PyTorch's tensors.")
set(CPACK_COMPONENT_CPU_DESCRIPTION "Compiles kernels for this machine's CPU through clang and LLVM.")
include(CPack)
