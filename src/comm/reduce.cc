#include "src/comm/reduce.h"

#include <algorithm>

namespace muonstore::comm {
namespace {

int64_t ReduceOne(ReduceOp op, int64_t a, int64_t b) {
  switch (op) {
    case ReduceOp::kSum:
      return static_cast<int64_t>(static_cast<uint64_t>(a) +
                                  static_cast<uint64_t>(b));
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kBitOr:
      return a | b;
  }
  return a;
}

}  // namespace

void Reduce(ReduceOp op, std::span<const int64_t> from,
            std::span<int64_t> into) {
  for (size_t i = 0; i < into.size(); ++i) {
    into[i] = ReduceOne(op, into[i], from[i]);
  }
}

}  // namespace muonstore::comm
