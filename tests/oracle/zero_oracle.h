// ZeRO's flat buffers, written out element by element.
//
// What: every element of every parameter is a unique label; the oracle builds
//   what each rank stores by concatenating, padding and cutting lists of
//   labels. It shares no code with the library.
#ifndef MUONSTORE_TESTS_ORACLE_ZERO_ORACLE_H_
#define MUONSTORE_TESTS_ORACLE_ZERO_ORACLE_H_

#include <cstdint>
#include <vector>

namespace muonstore::oracle {

// The label of storage that belongs to no parameter.
inline constexpr int64_t kPadding = -1;

using Labels = std::vector<int64_t>;

struct Parameter {
  std::vector<int64_t> dims;
  int64_t item_bytes = 2;
  int group = 0;
  bool is_trained = true;
  bool is_muon = true;
};

struct Rule {
  int stage = 2;
  int num_ranks = 1;
  bool sort_muon = true;
  int64_t alignment = 2;
  bool round_robin = false;
  bool align_parameters = false;
  int64_t sub_group_size = 1'000'000'000;
  bool whole_rows = false;
};

struct Group {
  int group = 0;
  std::vector<int> order;          // Indices of parameters.
  std::vector<int64_t> pad_after;  // Behind each parameter of `order`.
  std::vector<Labels> ranks;       // What each rank stores.
};

// The labels of parameter k are first[k], first[k] + 1, ... in row-major order.
std::vector<int64_t> FirstLabels(const std::vector<Parameter>& parameters);

std::vector<Group> WriteFlat(const std::vector<Parameter>& parameters,
                             const Rule& rule);

}  // namespace muonstore::oracle

#endif  // MUONSTORE_TESTS_ORACLE_ZERO_ORACLE_H_
