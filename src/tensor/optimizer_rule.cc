#include "muonstore/optimizer_rule.h"

#include <algorithm>
#include <string>

namespace muonstore {

Optimizer DeepSpeedOptimizer(std::string_view name, const Shape& shape) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const bool muon = shape.rank() >= 2 &&
                    lower.find("embed") == std::string::npos &&
                    lower.find("lm_head") == std::string::npos;
  return muon ? Optimizer::kMuon : Optimizer::kAdam;
}

}  // namespace muonstore
