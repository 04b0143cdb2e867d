#include "muonstore/state_kind.h"

namespace muonstore {

StateKind CanonicalStateKind(std::string_view name) {
  if (name == "fp32") {
    return StateKind(kMaster);
  }
  if (name == "momentum_buffer") {
    return StateKind(kMomentum);
  }
  if (name == "variance") {
    return StateKind(kExpAvgSq);
  }
  return StateKind(name);
}

}  // namespace muonstore
