#include "src/state/recorded_layout.h"

#include "muonstore/error.h"

namespace muonstore {

MatrixLayout RecordedLayout(const CheckpointInfo& info,
                            const std::string& parameter) {
  const auto found = info.matrix_layouts.find(parameter);
  if (found == info.matrix_layouts.end()) return MatrixLayout::Whole();
  const auto layout = MatrixLayout::Parse(found->second);
  if (!layout) {
    throw Error(
        ErrorCode::kDataLoss, "no such matrix layout",
        {.file = info.path, .tensor = parameter, .found = found->second});
  }
  return *layout;
}

}  // namespace muonstore
