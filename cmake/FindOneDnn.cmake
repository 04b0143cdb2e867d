# Finds oneDNN (libdnnl-dev): OneDnn::OneDnn. Its own package asks for OpenCL,
# which nothing here uses. Its threads are libgomp's, which a caller needs in
# order to keep a product on one thread.
find_path(OneDnn_INCLUDE_DIR NAMES oneapi/dnnl/dnnl.hpp)
find_library(OneDnn_LIBRARY NAMES dnnl)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDnn REQUIRED_VARS OneDnn_LIBRARY
                                  OneDnn_INCLUDE_DIR)
if(OneDnn_FOUND AND NOT TARGET OneDnn::OneDnn)
  add_library(OneDnn::OneDnn UNKNOWN IMPORTED)
  set_target_properties(OneDnn::OneDnn PROPERTIES
    IMPORTED_LOCATION ${OneDnn_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${OneDnn_INCLUDE_DIR}
    INTERFACE_LINK_LIBRARIES gomp)
endif()
mark_as_advanced(OneDnn_INCLUDE_DIR OneDnn_LIBRARY)
