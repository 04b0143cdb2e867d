# Every target of ours gets the same flags from here.

add_library(muonstore_flags INTERFACE)
target_compile_features(muonstore_flags INTERFACE cxx_std_20)
# Designated initializers leave members out on purpose.
set(muonstore_warnings -Wall -Wextra -Wconversion -Wshadow -Werror
    -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION
   VERSION_LESS 13)
  # GCC 12 sees overlaps in string concatenation that cannot be (PR 105651).
  list(APPEND muonstore_warnings -Wno-restrict)
endif()
# The compiler's own collector of garbage takes a tenth of a clean build; no
# file of ours needs a GiB without it.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(muonstore_compile_speed --param=ggc-min-heapsize=1048576)
endif()
target_compile_options(muonstore_flags INTERFACE
  $<BUILD_INTERFACE:${muonstore_warnings};${muonstore_compile_speed}>)

# muonstore_library(<name> SOURCES ... [DEPS public...] [PRIVATE_DEPS ...])
# A static library muonstore_<name>, alias muonstore::<name>, that sees the
# repository root (internal headers) and include/ (the public door).
function(muonstore_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(muonstore_${name} STATIC ${ARG_SOURCES})
  add_library(muonstore::${name} ALIAS muonstore_${name})
  set_target_properties(muonstore_${name} PROPERTIES
    EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(muonstore_${name} PUBLIC cxx_std_20)
  target_include_directories(muonstore_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(muonstore_${name}
    PUBLIC ${ARG_DEPS}
    PRIVATE $<BUILD_INTERFACE:muonstore_flags> ${ARG_PRIVATE_DEPS})
endfunction()

# The same for all test programs: they share precompiled headers.
function(muonstore_test_options name)
  # Most of a clean build goes into test programs, where optimizing gains
  # nothing: what they call is optimized. ccache needs the second.
  target_compile_options(${name} PRIVATE -O0 -fpch-preprocess)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name}
    PRIVATE muonstore_flags GTest::gtest GTest::gmock)
endfunction()

# muonstore_test(<name> SOURCES ... DEPS ... [LABELS ...])
# A GoogleTest program; each TEST becomes one ctest case.
function(muonstore_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  muonstore_test_options(${name})
  target_precompile_headers(${name} REUSE_FROM muonstore_test_headers)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
  # Helpers of tests like to have the same names, and what a larger batch would
  # save the precompiled headers have saved.
  set_target_properties(${name} PROPERTIES
    UNITY_BUILD_BATCH_SIZE 6
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(ARG_LABELS)
    set(labels PROPERTIES LABELS "${ARG_LABELS}")
  endif()
  gtest_discover_tests(${name}
    DISCOVERY_TIMEOUT 60 ${labels} PROPERTIES TIMEOUT 300)
endfunction()
