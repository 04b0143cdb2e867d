#include "formats/deepspeed/verify_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "formats/deepspeed/values.h"
#include "muonstore/copy_plan.h"
#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

constexpr int64_t kBlockElements = 1 << 20;

// Differences of two value lists, gathered block by block.
struct Difference {
  int64_t count = 0;
  int64_t first = -1;
  double largest = 0;

  void Add(int64_t index, double difference) {
    count += 1;
    first = first < 0 ? index : first;
    // An infinite or undefined difference is the largest of all.
    largest = std::isnan(difference) || std::isnan(largest)
                  ? std::nan("")
                  : std::max(largest, difference);
  }

  std::string ToString() const {
    return StrCat(count, count == 1 ? " element" : " elements",
                  ", the first at ", first, ", by at most ",
                  FormatNumber(largest));
  }
};

// Bytes of a few elements that may be compared and widened.
class Values {
 public:
  Values(DType dtype, std::span<const std::byte> bytes)
      : element_bytes_(static_cast<size_t>(SizeBytes(dtype))), bytes_(bytes) {
    widened_.resize(bytes.size() / element_bytes_);
    ConvertToF64(dtype, bytes, widened_);
  }

  void Compare(const Values& other, int64_t first_index,
               Difference& difference) const {
    if (bytes_.size() == other.bytes_.size() &&
        std::memcmp(bytes_.data(), other.bytes_.data(), bytes_.size()) == 0) {
      return;
    }
    for (size_t i = 0; i < widened_.size(); ++i) {
      const bool same_bits =
          std::memcmp(bytes_.data() + i * element_bytes_,
                      other.bytes_.data() + i * element_bytes_,
                      element_bytes_) == 0;
      const bool both_nan =
          std::isnan(widened_[i]) && std::isnan(other.widened_[i]);
      if (!same_bits && !both_nan) {
        difference.Add(first_index + static_cast<int64_t>(i),
                       std::abs(widened_[i] - other.widened_[i]));
      }
    }
  }

 private:
  size_t element_bytes_;
  std::span<const std::byte> bytes_;
  std::vector<double> widened_;
};

template <typename Body>
void ForEachBlock(int64_t num_elements, const Body& body) {
  for (int64_t at = 0; at < num_elements; at += kBlockElements) {
    body(ElementRange{at, std::min(num_elements, at + kBlockElements)});
  }
}

size_t RangeBytes(ElementRange range, DType dtype) {
  return static_cast<size_t>(range.size() * SizeBytes(dtype));
}

class ReplicaCheck {
 public:
  ReplicaCheck(const DeepSpeedCheckpoint& checkpoint, size_t tensor,
               std::vector<Finding>& findings)
      : checkpoint_(checkpoint),
        tensor_(tensor),
        info_(checkpoint.tensors()[tensor]),
        findings_(findings) {}

  void Run() {
    const std::vector<Fragment> owned = checkpoint_.fragments(tensor_);
    if (owned.size() < 2 || !info_.missing.empty()) {
      return;
    }
    for (const Fragment& fragment : owned) {
      CompareCopy(fragment);
    }
  }

 private:
  // The whole copy on the rank that owns `fragment`.
  void CompareCopy(const Fragment& fragment) {
    const Segment& segment =
        checkpoint_.segments()[static_cast<size_t>(fragment.segment)];
    const int64_t start = fragment.segment_offset - fragment.tensor_offset;
    Difference difference;
    ForEachBlock(info_.shape.num_elements(), [&](ElementRange range) {
      std::vector<std::byte> logical(RangeBytes(range, info_.dtype));
      std::vector<std::byte> copy(logical.size());
      ReadTensor(checkpoint_, tensor_, range, logical);
      checkpoint_.ReadSegment(fragment.segment, start + range.begin, copy);
      Values(info_.dtype, copy)
          .Compare(Values(info_.dtype, logical), range.begin, difference);
    });
    if (difference.count > 0) {
      Report(segment, difference);
    }
  }

  void Report(const Segment& segment, const Difference& difference) {
    const bool known =
        VersionBefore(checkpoint_.parts().ranks[0].version, {0, 19, 6});
    findings_.push_back(
        {.severity =
             known ? Finding::Severity::kWarning : Finding::Severity::kFault,
         .code = "replicas_differ",
         .message = StrCat(
             "the copy on rank ", segment.rank,
             " differs from the elements of the ranks that own them: ",
             difference.ToString(),
             known ? "; a known fault of this DeepSpeed version, the owners' "
                     "elements are taken"
                   : ""),
         .place = {.file = segment.file, .tensor = info_.key.ToString()}});
  }

  const DeepSpeedCheckpoint& checkpoint_;
  size_t tensor_;
  const CheckpointTensor& info_;
  std::vector<Finding>& findings_;
};

void CompareWeight(const DeepSpeedCheckpoint& checkpoint, size_t weight,
                   size_t master, std::vector<Finding>& findings) {
  const CheckpointTensor& info = checkpoint.tensors()[weight];
  Difference difference;
  ForEachBlock(info.shape.num_elements(), [&](ElementRange range) {
    std::vector<std::byte> stored(RangeBytes(range, info.dtype));
    std::vector<std::byte> rounded(stored.size());
    ReadTensor(checkpoint, weight, range, stored);
    ConvertFromF32(ReadTensorF32(checkpoint, master, range), info.dtype,
                   rounded);
    Values(info.dtype, stored)
        .Compare(Values(info.dtype, rounded), range.begin, difference);
  });
  if (difference.count > 0) {
    findings.push_back(
        {.severity = Finding::Severity::kFault,
         .code = "weights_differ",
         .message =
             StrCat("the file's own weight is not round(master): ",
                    difference.ToString(), "; files of different saves?"),
         .place = {.file = checkpoint.parts().model->file->path(),
                   .tensor = info.key.ToString()}});
  }
}

}  // namespace

void CheckCoverageOfAll(const DeepSpeedCheckpoint& checkpoint,
                        std::vector<Finding>& findings) {
  const auto report = [&](const CheckpointTensor& tensor, std::string message) {
    findings.push_back({.severity = Finding::Severity::kFault,
                        .code = "coverage",
                        .message = std::move(message),
                        .place = {.file = checkpoint.info().path,
                                  .tensor = tensor.key.ToString()}});
  };
  for (size_t t = 0; t < checkpoint.tensors().size(); ++t) {
    const CheckpointTensor& tensor = checkpoint.tensors()[t];
    const std::vector<Fragment> fragments = checkpoint.fragments(t);
    if (!CheckCoverage(fragments, tensor.shape.num_elements()).complete()) {
      report(tensor, "the files do not hold every element exactly once");
    }
    for (const Fragment& fragment : fragments) {
      const Segment& segment =
          checkpoint.segments()[static_cast<size_t>(fragment.segment)];
      if (tensor.missing.empty() &&
          fragment.segment_offset + fragment.num_elements() >
              segment.num_elements) {
        report(tensor, StrCat("the buffer of rank ", segment.rank,
                              " ends before the tensor does"));
      }
    }
  }
}

void CompareReplicas(const DeepSpeedCheckpoint& checkpoint,
                     std::vector<Finding>& findings) {
  if (checkpoint.info().momentum &&
      checkpoint.info().momentum->stored_form != "whole matrices") {
    return;
  }
  for (size_t t = 0; t < checkpoint.tensors().size(); ++t) {
    if (checkpoint.tensors()[t].key.kind == kMomentum) {
      ReplicaCheck(checkpoint, t, findings).Run();
    }
  }
}

void CompareWeights(const DeepSpeedCheckpoint& checkpoint,
                    std::vector<Finding>& findings) {
  std::unordered_map<std::string_view, size_t> masters;
  for (size_t t = 0; t < checkpoint.tensors().size(); ++t) {
    const TensorKey& key = checkpoint.tensors()[t].key;
    if (key.kind == kMaster) {
      masters.emplace(key.parameter, t);
    }
  }
  for (size_t t = 0; t < checkpoint.tensors().size(); ++t) {
    const CheckpointTensor& tensor = checkpoint.tensors()[t];
    const auto master = masters.find(tensor.key.parameter);
    if (tensor.key.kind == kWeight && !tensor.derived &&
        master != masters.end()) {
      CompareWeight(checkpoint, t, master->second, findings);
    }
  }
}

}  // namespace muonstore::deepspeed
