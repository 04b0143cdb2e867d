# Installs the libraries, the public headers and a package for
# find_package(muonstore).
include(CMakePackageConfigHelpers)

# What an outside program links: muonstore::muonstore. The parts follow it into
# the export set because static libraries need their dependencies at the link.
set(muonstore_parts
  base log os tensor partition state torchfile safetensors deepspeed native
  native_writer converters sinks inspect kernel tier comm store executor
  cuda checkpoint live)
list(TRANSFORM muonstore_parts PREPEND muonstore_ OUTPUT_VARIABLE part_targets)

add_library(muonstore INTERFACE)
add_library(muonstore::muonstore ALIAS muonstore)
target_link_libraries(muonstore INTERFACE ${part_targets})

install(TARGETS muonstore ${part_targets}
  EXPORT muonstoreTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/muonstore
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")

install(TARGETS muonstore_cuda_plugin
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/muonstore)
install(EXPORT muonstoreTargets NAMESPACE muonstore::
  DESTINATION ${package_dir})

# What needs LibTorch is a component of its own.
if(MUONSTORE_WITH_TORCH)
  install(TARGETS muonstore_torch muonstore_c10d
    EXPORT muonstoreTorchTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT muonstoreTorchTargets NAMESPACE muonstore::
    DESTINATION ${package_dir})
  install(FILES ${CMAKE_CURRENT_LIST_DIR}/FindLibTorch.cmake
    DESTINATION ${package_dir})
endif()
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/muonstoreConfig.cmake.in
  ${PROJECT_BINARY_DIR}/muonstoreConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/muonstoreConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/muonstoreConfig.cmake
  ${PROJECT_BINARY_DIR}/muonstoreConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindHdf5C.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindIsaL.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindOneDnn.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindUring.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindXxHash.cmake
  DESTINATION ${package_dir})
