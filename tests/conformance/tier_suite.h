// One suite for every tier: what include/muonstore/tier.h promises.
//
// What: a tier joins by one line in its test:
//   INSTANTIATE_TEST_SUITE_P(Nvme, TierConformance, testing::Values(MakeIt));
//   and by linking muonstore_tier_conformance.
#ifndef MUONSTORE_TESTS_CONFORMANCE_TIER_SUITE_H_
#define MUONSTORE_TESTS_CONFORMANCE_TIER_SUITE_H_

#include <memory>

#include <gtest/gtest.h>

#include "muonstore/tier.h"

namespace muonstore {

using TierFactory = std::unique_ptr<Tier> (*)();

class TierConformance : public testing::TestWithParam<TierFactory> {
 protected:
  std::unique_ptr<Tier> tier_ = GetParam()();
};

}  // namespace muonstore

#endif  // MUONSTORE_TESTS_CONFORMANCE_TIER_SUITE_H_
