// The exact sum of the squares of floats, in any order and any cut.
//
// What: a fixed-point number wide enough for every square of a float and 2^60
//   of them. Nothing is rounded before Round(), so that a norm does not depend
//   on how state is cut over ranks, threads or calls.
// Ownership: a value of a few hundred bytes.
// Threads: as a plain value; one sum a thread, then Merge.
// Failures: Error(kInvalidArgument) for words that are not this class's.

#ifndef MUONSTORE_SRC_KERNEL_EXACT_SUM_H_
#define MUONSTORE_SRC_KERNEL_EXACT_SUM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace muonstore {

class ExactSum {
 public:
  // How many non-finite values were met, then 32-bit digits of the sum, least
  // significant first. Words of up to 2^30 sums may be added up as integers
  // (an all-reduce) and given to FromWords.
  static constexpr size_t kNumWords = 21;
  using Words = std::array<int64_t, kNumWords>;

  ExactSum() = default;
  static ExactSum FromWords(const Words& words);

  // Adds (value * factor)^2 of each value, where the product is rounded to
  // float first. Non-finite products are counted and otherwise left out.
  void AddSquares(std::span<const float> values, float factor = 1.0F);
  void Merge(const ExactSum& other);
  // Counts a non-finite value that somebody else met.
  void AddNonFinite() { ++num_nonfinite_; }

  bool finite() const { return num_nonfinite_ == 0; }
  int64_t num_nonfinite() const { return num_nonfinite_; }
  Words words() const;
  // The sum, rounded once to nearest even; infinity unless finite().
  double Round() const;

 private:
  static constexpr size_t kNumDigits = kNumWords - 1;
  using Digits = std::array<int64_t, kNumDigits>;

  // Adds up to 1024 squares, the largest in [2^exponent, 2^(exponent + 1));
  // they are used up.
  void AddBlock(std::span<double> squares, int exponent);
  // Adds a multiple of 2^-298.
  void AddExact(double value);
  Digits Normalized() const;

  int64_t num_nonfinite_ = 0;
  int64_t num_pending_ = 0;  // Additions since digits were last normalized.
  Digits digits_ = {};
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_EXACT_SUM_H_
