#include "tests/oracle/sum_oracle.h"

#include <cmath>
#include <cstddef>
#include <utility>

namespace muonstore::oracle {
namespace {

// a + b = sum + error, exactly.
struct Pair {
  double sum;
  double error;
};

Pair Add(double a, double b) {
  if (std::abs(a) < std::abs(b)) std::swap(a, b);
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

}  // namespace

double ExactlyRoundedSum(const std::vector<double>& values) {
  // Parts that do not overlap, by growing magnitude.
  std::vector<double> parts;
  for (double value : values) {
    size_t kept = 0;
    for (const double part : parts) {
      const Pair pair = Add(value, part);
      if (pair.error != 0) parts[kept++] = pair.error;
      value = pair.sum;
    }
    parts.resize(kept);
    parts.push_back(value);
  }
  double high = 0;
  double error = 0;
  while (!parts.empty() && error == 0) {
    const Pair pair = Add(high, parts.back());
    parts.pop_back();
    high = pair.sum;
    error = pair.error;
  }
  // Half an ulp was dropped: the next part decides which way it rounds.
  if (!parts.empty() && error * parts.back() > 0) {
    const double doubled = 2 * error;
    const double rounded = high + doubled;
    if (rounded - high == doubled) high = rounded;
  }
  return high;
}

}  // namespace muonstore::oracle
