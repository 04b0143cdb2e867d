// Seeded random models, rules and meshes.
//
// What: inputs for the property tests, each for the library and, where there is
//   one, for the oracle.
#ifndef MUONSTORE_TESTS_PARTITION_RANDOM_MODEL_H_
#define MUONSTORE_TESTS_PARTITION_RANDOM_MODEL_H_

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "muonstore/fragment.h"
#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"
#include "tests/oracle/zero_oracle.h"

namespace muonstore {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  // Uniform in [low, high].
  int64_t Pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() %
                                      static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(int64_t percent) { return Pick(1, 100) <= percent; }

 private:
  std::mt19937_64 engine_;
};

// Up to 4 dimensions; often odd, sometimes with one or no element.
std::vector<int64_t> RandomDims(Random& random);

// Up to 3 groups of one optimizer each, some parameters frozen.
std::vector<ParameterSpec> RandomSpecs(Random& random);
ZeroRule RandomRule(Random& random, int32_t stage);

std::vector<oracle::Parameter> ForOracle(std::span<const ParameterSpec> specs);
oracle::Rule ForOracle(const ZeroRule& rule);

// The tensor cut into contiguous pieces over at most `num_segments` segments,
// in random order within a segment, with gaps between them.
std::vector<Fragment> RandomCuts(Random& random, int64_t num_elements,
                                 int32_t num_segments);

// planes x rows x cols cut into a mesh of boxes; every box is one fragment a
// plane. Boxes share segments, with gaps between them.
struct Box {
  int64_t planes;
  int64_t rows;
  int64_t cols;
};
std::vector<Fragment> RandomMesh(Random& random, const Box& tensor);

}  // namespace muonstore

#endif  // MUONSTORE_TESTS_PARTITION_RANDOM_MODEL_H_
