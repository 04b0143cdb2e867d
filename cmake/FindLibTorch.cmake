# Finds the CPU half of LibTorch: LibTorch::LibTorch (libtorch_cpu and libc10).
#
# Looked for in LibTorch_ROOT, in the environment's MUONSTORE_LIBTORCH, in
# CMAKE_PREFIX_PATH, and where scripts/setup_libtorch and scripts/setup_interop
# put it. Not by find_package(Torch): the package in the wheel turns the CUDA
# language on and links an NCCL of another version.
file(GLOB LibTorch_hints
  ${PROJECT_SOURCE_DIR}/build/libtorch/venv/lib/python3*/site-packages/torch
  ${PROJECT_SOURCE_DIR}/build/interop/venv/lib/python3*/site-packages/torch)
list(PREPEND LibTorch_hints "$ENV{MUONSTORE_LIBTORCH}")
find_path(LibTorch_INCLUDE_DIR NAMES ATen/core/Tensor.h
  HINTS ${LibTorch_hints} PATH_SUFFIXES include)
# torch/torch.h, the C++ front end.
find_path(LibTorch_API_INCLUDE_DIR NAMES torch/torch.h
  HINTS ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY NAMES torch_cpu
  HINTS ${LibTorch_INCLUDE_DIR}/../lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY NAMES c10
  HINTS ${LibTorch_INCLUDE_DIR}/../lib NO_DEFAULT_PATH)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
    LibTorch_API_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run scripts/setup_libtorch, name the folder of a \
LibTorch in MUONSTORE_LIBTORCH, or configure with -DMUONSTORE_WITH_TORCH=OFF")
if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES
    IMPORTED_LOCATION ${LibTorch_C10_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES
      "${LibTorch_INCLUDE_DIR};${LibTorch_API_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=1)
  add_library(LibTorch::LibTorch SHARED IMPORTED)
  set_target_properties(LibTorch::LibTorch PROPERTIES
    IMPORTED_LOCATION ${LibTorch_CPU_LIBRARY}
    INTERFACE_LINK_LIBRARIES LibTorch::c10)
endif()
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_API_INCLUDE_DIR
                 LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY)
