#include "src/executor/not_finite.h"

#include <algorithm>
#include <cmath>

#include "muonstore/error.h"

namespace muonstore {
namespace {

bool IsFinite(const StridedMatrices<const float>& in, int64_t matrix) {
  const float* data = in.data + matrix * in.batch_stride;
  for (int64_t row = 0; row < in.rows; ++row) {
    const std::span values(data + row * in.row_stride,
                           static_cast<size_t>(in.cols));
    const auto is_finite = [](float value) { return std::isfinite(value); };
    if (!std::all_of(values.begin(), values.end(), is_finite)) return false;
  }
  return true;
}

}  // namespace

std::optional<size_t> FirstNotFinite(std::span<const OrthogonalizeJob> jobs) {
  size_t index = 0;
  for (const OrthogonalizeJob& job : jobs) {
    for (int64_t matrix = 0; matrix < job.in.batch; ++matrix, ++index) {
      if (!IsFinite(job.in, matrix)) return index;
    }
  }
  return std::nullopt;
}

void ThrowNotFiniteMomentum(const std::string& parameter) {
  throw Error(ErrorCode::kInvalidArgument,
              "the momentum of this parameter has elements that are not "
              "finite; resume from a checkpoint without them (ckpt-inspect "
              "momentum shows which are good)",
              {.tensor = parameter + "/momentum"});
}

}  // namespace muonstore
