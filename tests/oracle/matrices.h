// Which elements of a parameter form which matrices, written out.
//
// What: a matrix is the list of its elements' positions in the tensor, row by
//   row. Layouts are built as a script with lists would do it: rows are
//   gathered one by one. It shares no code with the library.
#ifndef MUONSTORE_TESTS_ORACLE_MATRICES_H_
#define MUONSTORE_TESTS_ORACLE_MATRICES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muonstore::oracle {

struct IndexedMatrix {
  size_t rows = 0;
  size_t cols = 0;
  std::vector<size_t> elements;  // rows * cols positions.
};

struct MatrixRule {
  enum class Kind {
    kWhole,              // First dimension x the rest.
    kPackedRows,         // `sizes` rows each; of `count` heads.
    kPerHead,            // `count` equal blocks of rows.
    kInterleavedHeads,   // `count` groups of `queries` Q, one K, one V block.
    kInterleavedPacked,  // The same rows; all Q, all K, all V.
    kExperts,            // First dimension of matrices.
  };
  Kind kind = Kind::kWhole;
  std::vector<int64_t> sizes = {};
  int64_t count = 1;
  int64_t queries = 1;
};

// All of them; none for a tensor without elements.
std::vector<IndexedMatrix> MatricesOf(const std::vector<int64_t>& shape,
                                      const MatrixRule& rule);

}  // namespace muonstore::oracle

#endif  // MUONSTORE_TESTS_ORACLE_MATRICES_H_
