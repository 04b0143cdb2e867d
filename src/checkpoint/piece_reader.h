// Reads this rank's pieces of a tensor of a store from a checkpoint.
//
// What: block after block, widened, divided and rounded to the store's dtype;
//   zeros where the checkpoint has none.
// Ownership: refers to the checkpoint; keeps scratch space of a few MB.
// Threads: a reader belongs to one thread.
// Failures: what reading the checkpoint throws, with the tensor's name.

#ifndef MUONSTORE_SRC_CHECKPOINT_PIECE_READER_H_
#define MUONSTORE_SRC_CHECKPOINT_PIECE_READER_H_

#include <cstddef>
#include <span>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/lease.h"
#include "src/checkpoint/load_plan.h"

namespace muonstore {

class PieceReader {
 public:
  explicit PieceReader(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint) {}
  ~PieceReader() = default;
  PieceReader(const PieceReader&) = delete;
  PieceReader& operator=(const PieceReader&) = delete;

  // Fills the piece, whose elements are of `dtype`.
  void Read(const LoadItem& item, DType dtype,
            const StatePiece<std::byte>& piece);

 private:
  void ReadRun(const LoadItem& item, DType dtype, ElementRange range,
               std::span<std::byte> out);
  // Its elements are the checkpoint's as they are.
  bool IsDirect(const LoadItem& item, DType dtype) const;
  // At most a block, all of which the checkpoint holds.
  void ReadBlock(const LoadItem& item, DType dtype, ElementRange range,
                 std::span<std::byte> out);

  const Checkpoint& checkpoint_;
  std::vector<std::byte> stored_;
  std::vector<double> doubles_;
  std::vector<float> floats_;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_CHECKPOINT_PIECE_READER_H_
