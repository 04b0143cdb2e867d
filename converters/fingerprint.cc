#include "converters/fingerprint.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "formats/torchfile/crc32.h"
#include "muonstore/error.h"
#include "src/base/str.h"

#include <nlohmann/json.hpp>

namespace muonstore {
namespace {

constexpr int kVersion = 1;

bool IsFingerprinted(const CheckpointTensor& tensor) {
  return tensor.key.kind == kMaster || tensor.key.kind == kMomentum;
}

}  // namespace

Fingerprint::Fingerprint(const Checkpoint& source) : source_(source) {}

bool Fingerprint::Claim(const SinkPiece& piece) {
  if (!IsFingerprinted(source_.tensors()[piece.tensor])) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  std::map<int64_t, Piece>& pieces = pieces_[piece.tensor];
  const auto next = pieces.lower_bound(piece.tensor_offset);
  const bool meets_next =
      next != pieces.end() && next->first < piece.tensor_offset + piece.length;
  const bool meets_last =
      next != pieces.begin() &&
      std::prev(next)->first + std::prev(next)->second.length >
          piece.tensor_offset;
  if (meets_next || meets_last) {
    return false;
  }
  pieces.emplace(piece.tensor_offset, Piece{.length = piece.length});
  return true;
}

void Fingerprint::Add(const SinkPiece& piece, uint32_t crc) {
  const std::lock_guard lock(mutex_);
  pieces_.at(piece.tensor).at(piece.tensor_offset).crc = crc;
}

uint32_t Fingerprint::Whole(size_t tensor) const {
  const CheckpointTensor& info = source_.tensors()[tensor];
  const auto pieces = pieces_.find(tensor);
  uint32_t crc = 0;
  int64_t at = 0;
  if (pieces != pieces_.end()) {
    for (const auto& [begin, piece] : pieces->second) {
      if (begin != at) {
        break;
      }
      crc = torchfile::Crc32Combine(
          crc, piece.crc, static_cast<uint64_t>(piece.length) * sizeof(float));
      at += piece.length;
    }
  }
  if (at != info.shape.num_elements()) {
    throw Error(ErrorCode::kInternal, "was not written as a whole",
                {.tensor = info.key.ToString(),
                 .expected = StrCat(info.shape.num_elements(), " elements"),
                 .found = StrCat(at)});
  }
  return crc;
}

std::string Fingerprint::ToJson(std::span<const SinkLoss> losses) const {
  std::set<size_t> lost;
  for (const SinkLoss& loss : losses) {
    lost.insert(loss.tensors.begin(), loss.tensors.end());
  }
  nlohmann::ordered_json parameters = nlohmann::ordered_json::array();
  std::map<std::string, size_t> rows;
  for (size_t i = 0; i < source_.tensors().size(); ++i) {
    const CheckpointTensor& tensor = source_.tensors()[i];
    if (!IsFingerprinted(tensor) || lost.contains(i)) {
      continue;
    }
    const auto [row, is_new] =
        rows.emplace(tensor.key.parameter, parameters.size());
    if (is_new) {
      parameters.push_back({{"name", tensor.key.parameter},
                            {"num_elements", tensor.shape.num_elements()}});
    }
    parameters[row->second][tensor.key.kind] = torchfile::Crc32ToHex(Whole(i));
  }
  const nlohmann::ordered_json whole = {
      {"format", "muonstore fingerprint"},
      {"version", kVersion},
      {"checksum", "CRC-32 of little-endian float32 in row-major order"},
      {"parameters", std::move(parameters)}};
  // Names that are no UTF-8 cannot be compared by a JSON reader anyway.
  return whole.dump(1, ' ', false,
                    nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

SegmentFingerprint::SegmentFingerprint(Fingerprint& fingerprint,
                                       const SinkSegment& segment)
    : fingerprint_(fingerprint), segment_(segment) {}

void SegmentFingerprint::Append(std::span<const std::byte> bytes) {
  const auto item = static_cast<size_t>(SizeBytes(segment_.dtype));
  while (!bytes.empty() && piece_ < segment_.pieces.size()) {
    const SinkPiece& piece = segment_.pieces[piece_];
    const auto left = static_cast<int64_t>(bytes.size() / item);
    const int64_t skipped =
        std::clamp<int64_t>(piece.segment_offset - at_, 0, left);
    const int64_t end = piece.segment_offset + piece.length;
    const int64_t taken =
        std::clamp<int64_t>(end - at_ - skipped, 0, left - skipped);
    AddPart(bytes.subspan(static_cast<size_t>(skipped) * item,
                          static_cast<size_t>(taken) * item));
    at_ += skipped + taken;
    bytes = bytes.subspan(static_cast<size_t>(skipped + taken) * item);
    if (at_ < end) {
      return;
    }
    if (claimed_.value_or(false)) {
      fingerprint_.Add(piece, crc_);
    }
    ++piece_;
    claimed_.reset();
    crc_ = 0;
  }
}

void SegmentFingerprint::AddPart(std::span<const std::byte> bytes) {
  if (bytes.empty()) {
    return;
  }
  if (!claimed_) {
    claimed_ = fingerprint_.Claim(segment_.pieces[piece_]);
  }
  if (!*claimed_) {
    return;
  }
  if (segment_.dtype != DType::kF32) {
    floats_.resize(bytes.size() /
                   static_cast<size_t>(SizeBytes(segment_.dtype)));
    ConvertToF32(segment_.dtype, bytes, floats_);
    bytes = std::as_bytes(std::span(floats_));
  }
  crc_ = torchfile::Crc32(crc_, bytes);
}

}  // namespace muonstore
