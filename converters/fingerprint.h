// Checksums of masters and momentum by parameter name.
//
// What: DeepSpeed loads by position and takes a checkpoint in another parameter
//   order without a word. A fingerprint, written beside the tag, lets a script
//   (scripts/deepspeed_fingerprint.py) compare what was loaded, by name. It is
//   taken from the bytes on their way to the target, so nothing is read twice.
// Ownership: keeps a reference to the source's tensors.
// Threads: many threads may each feed a SegmentFingerprint of their own.
// Failures: Error(kInternal) where elements never passed by.
//
// The checksum: CRC-32 (that of zip and of Python's zlib.crc32) of the values
// as little-endian float32 in row-major order.

#ifndef MUONSTORE_CONVERTERS_FINGERPRINT_H_
#define MUONSTORE_CONVERTERS_FINGERPRINT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"

namespace muonstore {

class Fingerprint {
 public:
  explicit Fingerprint(const Checkpoint& source);

  // {"format": ..., "parameters": [{"name", "num_elements", "master",
  // "momentum"}]}, parameters in the source's order, without what is lost.
  std::string ToJson(std::span<const SinkLoss> losses = {}) const;

 private:
  friend class SegmentFingerprint;

  struct Piece {
    int64_t length = 0;
    uint32_t crc = 0;
  };

  // False for tensors of other kinds and for copies of what is claimed already.
  bool Claim(const SinkPiece& piece);
  void Add(const SinkPiece& piece, uint32_t crc);
  // Error(kInternal) where pieces are missing.
  uint32_t Whole(size_t tensor) const;

  const Checkpoint& source_;
  mutable std::mutex mutex_;
  // By tensor: by the first element.
  std::map<size_t, std::map<int64_t, Piece>> pieces_;
};

// Watches one segment being filled from front to back.
class SegmentFingerprint {
 public:
  SegmentFingerprint(Fingerprint& fingerprint, const SinkSegment& segment);

  // The next elements of the segment, as written.
  void Append(std::span<const std::byte> bytes);

 private:
  void AddPart(std::span<const std::byte> bytes);

  Fingerprint& fingerprint_;
  const SinkSegment& segment_;
  size_t piece_ = 0;  // The one that the next element is in or before.
  std::optional<bool> claimed_;
  uint32_t crc_ = 0;
  int64_t at_ = 0;  // Elements so far.
  std::vector<float> floats_;
};

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_FINGERPRINT_H_
