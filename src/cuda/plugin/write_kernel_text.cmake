# Writes OUT: the text of SOURCE and, where it is not empty, of PTX, as C++.
function(read_text file out)
  set(text "")
  if(file)
    file(READ ${file} text)
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

read_text("${SOURCE}" source)
read_text("${PTX}" ptx)
file(WRITE ${OUT} "#include \"src/cuda/plugin/kernel_module.h\"

namespace muonstore::cuda {

std::string_view KernelSource() {
  return R\"kernels(${source})kernels\";
}

std::string_view BuiltKernels() {
  return R\"kernels(${ptx})kernels\";
}

}  // namespace muonstore::cuda
")
