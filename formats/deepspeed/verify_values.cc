#include "formats/deepspeed/verify_values.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "formats/deepspeed/values.h"
#include "muonstore/copy_plan.h"
#include "src/base/str.h"
#include "src/tensor/value_difference.h"

namespace muonstore::deepspeed {
namespace {

constexpr int64_t kBlockElements = 1 << 20;

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
    ValueDifference difference;
    ForEachBlock(info_.shape.num_elements(), [&](ElementRange range) {
      std::vector<std::byte> logical(RangeBytes(range, info_.dtype));
      std::vector<std::byte> copy(logical.size());
      ReadTensor(checkpoint_, tensor_, range, logical);
      checkpoint_.ReadSegment(fragment.segment, start + range.begin, copy);
      difference.Compare(info_.dtype, copy, logical, range.begin);
    });
    if (difference.count() > 0) {
      Report(segment, difference);
    }
  }

  void Report(const Segment& segment, const ValueDifference& difference) {
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
  ValueDifference difference;
  ForEachBlock(info.shape.num_elements(), [&](ElementRange range) {
    std::vector<std::byte> stored(RangeBytes(range, info.dtype));
    std::vector<std::byte> rounded(stored.size());
    ReadTensor(checkpoint, weight, range, stored);
    ConvertFromF32(ReadTensorF32(checkpoint, master, range), info.dtype,
                   rounded);
    difference.Compare(info.dtype, stored, rounded, range.begin);
  });
  if (difference.count() > 0) {
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
