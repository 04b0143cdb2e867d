# Finds Intel ISA-L (libisal-dev), which ships no CMake package: IsaL::IsaL.
find_path(IsaL_INCLUDE_DIR NAMES isa-l/crc.h isa-l.h)
find_library(IsaL_LIBRARY NAMES isal)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(IsaL REQUIRED_VARS IsaL_LIBRARY
                                  IsaL_INCLUDE_DIR)
if(IsaL_FOUND AND NOT TARGET IsaL::IsaL)
  add_library(IsaL::IsaL UNKNOWN IMPORTED)
  set_target_properties(IsaL::IsaL PROPERTIES
    IMPORTED_LOCATION ${IsaL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${IsaL_INCLUDE_DIR})
endif()
mark_as_advanced(IsaL_INCLUDE_DIR IsaL_LIBRARY)
