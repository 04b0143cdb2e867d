#include "muonstore/parameter.h"

namespace muonstore {

std::string_view OptimizerName(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kNone:
      return "none";
    case Optimizer::kMuon:
      return "muon";
    case Optimizer::kAdam:
      return "adam";
    case Optimizer::kOther:
      return "other";
  }
  return "unknown";
}

}  // namespace muonstore
