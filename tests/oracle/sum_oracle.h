// Correctly rounded sums of doubles: Shewchuk's growing expansions, as in
// Python's math.fsum.
#ifndef MUONSTORE_TESTS_ORACLE_SUM_ORACLE_H_
#define MUONSTORE_TESTS_ORACLE_SUM_ORACLE_H_

#include <vector>

namespace muonstore::oracle {

// The exact sum of finite values, rounded once to nearest even.
double ExactlyRoundedSum(const std::vector<double>& values);

}  // namespace muonstore::oracle

#endif  // MUONSTORE_TESTS_ORACLE_SUM_ORACLE_H_
