# SPDX-License-Identifier: Apache-2.0
# Installs libattune with its headers, the CMake package (find_package(attune)), the pkg-config file and the Python module.
include(CMakePackageConfigHelpers)

install(TARGETS attune EXPORT attune_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include/attune DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
if(NOT ATTUNE_WHEEL)  # pyproject.toml does this for wheels
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/python/attune DESTINATION ${CMAKE_INSTALL_DATADIR}/attune/python
          FILES_MATCHING PATTERN "*.py")
  install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/share/datasette.yml DESTINATION ${CMAKE_INSTALL_DATADIR}/attune COMPONENT tools)
endif()

set(attune_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/attune)
string(REGEX REPLACE "^\\./" "" attune_cmake_dir ${attune_cmake_dir})  # its levels are counted, to find the prefix
install(EXPORT attune_targets NAMESPACE attune:: FILE attuneTargets.cmake DESTINATION ${attune_cmake_dir} COMPONENT dev)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/attuneConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/attuneConfig.cmake
                              INSTALL_DESTINATION ${attune_cmake_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/attuneConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attuneConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/attuneConfigVersion.cmake
        DESTINATION ${attune_cmake_dir} COMPONENT dev)

# Paths are relative to this file, so that an installed tree can be moved.
file(RELATIVE_PATH attune_pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_CURRENT_LIST_DIR}/attune.pc.in ${CMAKE_CURRENT_BINARY_DIR}/attune.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attune.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
