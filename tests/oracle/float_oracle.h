// Narrow floating-point formats by definition, slowly.
//
// What: the value of a bit pattern by ldexp, and rounding by looking for the
//   nearest of all finite values. It shares no code with the library.
#ifndef MUONSTORE_TESTS_ORACLE_FLOAT_ORACLE_H_
#define MUONSTORE_TESTS_ORACLE_FLOAT_ORACLE_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace muonstore::oracle {

enum class Specials {
  kIeee,       // Exponent of ones: infinity, or NaN with a mantissa.
  kOneNan,     // Exponent and mantissa of ones: NaN; no infinity.
  kMinusZero,  // The pattern of -0 is the NaN; no infinity.
};

struct Format {
  int exponent_bits = 0;
  int mantissa_bits = 0;
  int bias = 0;
  Specials specials = Specials::kIeee;
};

inline constexpr Format kHalf{5, 10, 15};
inline constexpr Format kBrain{8, 7, 127};
inline constexpr Format kE4M3FN{4, 3, 7, Specials::kOneNan};
inline constexpr Format kE4M3FNUZ{4, 3, 8, Specials::kMinusZero};
inline constexpr Format kE5M2{5, 2, 15};
inline constexpr Format kE5M2FNUZ{5, 2, 16, Specials::kMinusZero};

double Decode(const Format& format, uint32_t bits);

// Rounds to a 16-bit IEEE-like format, to nearest, ties to the even pattern.
class Rounder {
 public:
  explicit Rounder(const Format& format);
  // Not for NaN.
  uint16_t Round(double value) const;

 private:
  uint16_t RoundMagnitude(double value) const;

  // Values of the positive patterns 0, 1, ...; the last stands for infinity and
  // has the value that the next binade would begin with.
  std::vector<double> values_;
};

}  // namespace muonstore::oracle

#endif  // MUONSTORE_TESTS_ORACLE_FLOAT_ORACLE_H_
