#include "tests/testutil/golden.h"

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "tests/testutil/hdf5_file.h"

namespace muonstore::testutil {

Golden ReadGolden(const std::filesystem::path& path) {
  const Hdf5File file(path);
  Golden golden;
  for (const std::string& name : file.datasets()) {
    Hdf5Tensor stored = file.Read(name);
    GoldenTensor tensor{.shape = std::move(stored.shape)};
    if (stored.dtype == DType::kF32) {
      tensor.floats = stored.floats();
    } else if (stored.dtype == DType::kF64) {
      tensor.doubles = std::move(stored.values);
    } else {
      throw std::runtime_error("neither float32 nor float64: " + path.string() +
                               ": " + name);
    }
    golden.emplace(name, std::move(tensor));
  }
  return golden;
}

Golden ReadGolden(const DeepSpeedTag& tag) {
  constexpr std::string_view kLater = "final_";
  // Cases are saved at step 5; the only other tag is the end of the run.
  const bool later = tag.tag != "step5";
  Golden golden;
  for (auto& [name, tensor] : ReadGolden(tag.golden_path())) {
    const bool is_later = name.starts_with(kLater);
    if (is_later != later || name.starts_with("buffer_after8/")) continue;
    golden.emplace(later ? name.substr(kLater.size()) : name,
                   std::move(tensor));
  }
  if (golden.empty()) {
    throw std::runtime_error("no golden values for " + tag.ToString());
  }
  return golden;
}

}  // namespace muonstore::testutil
