// What a conversion writes and loses, proven before anything is written.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "converters/element_converter.h"
#include "muonstore/convert.h"
#include "muonstore/copy_plan.h"
#include "src/base/str.h"
#include "src/state/tensor_index.h"

namespace muonstore {
namespace {

// The elements of one tensor that the target holds: ascending, merged ranges.
class HeldRanges {
 public:
  void Add(ElementRange range) {
    // Files follow the ranks, so that ranges mostly come in ascending order.
    if (ranges_.empty() || range.begin > ranges_.back().end) {
      ranges_.push_back(range);
      return;
    }
    const auto first = std::lower_bound(
        ranges_.begin(), ranges_.end(), range.begin,
        [](const ElementRange& r, int64_t begin) { return r.end < begin; });
    auto last = first;
    for (; last != ranges_.end() && last->begin <= range.end; ++last) {
      range.begin = std::min(range.begin, last->begin);
      range.end = std::max(range.end, last->end);
    }
    ranges_.insert(ranges_.erase(first, last), range);
  }

  bool empty() const { return ranges_.empty(); }
  int64_t NumElementsIn(const ElementRange& range) const {
    int64_t count = 0;
    for (const ElementRange& held : ranges_) {
      count += std::max<int64_t>(
          0, std::min(held.end, range.end) - std::max(held.begin, range.begin));
    }
    return count;
  }
  // The first element of [0, num_elements) that is not held.
  std::optional<int64_t> FirstGap(int64_t num_elements) const {
    if (num_elements == 0) return std::nullopt;
    if (ranges_.empty() || ranges_.front().begin > 0) return 0;
    const int64_t end = ranges_.front().end;
    return end < num_elements ? std::optional(end) : std::nullopt;
  }

 private:
  std::vector<ElementRange> ranges_;
};

class Planner {
 public:
  Planner(const Checkpoint& source, const CheckpointSink& sink)
      : source_(source), sink_(sink), held_(source.tensors().size()) {}

  ConversionPlan Run() {
    plan_.path = sink_.path();
    plan_.losses.assign(sink_.losses().begin(), sink_.losses().end());
    plan_.notes.assign(sink_.notes().begin(), sink_.notes().end());
    for (size_t file = 0; file < sink_.num_files(); ++file) {
      const std::vector<SinkSegment> segments = sink_.PlanFile(file);
      for (const SinkSegment& segment : segments) CheckSegment(segment);
      plan_.file_bytes.push_back(PayloadBytes(segments));
      plan_.payload_bytes += plan_.file_bytes.back();
    }
    CheckSource();
    CheckNothingElseIsLost();
    AddMissing();
    return std::move(plan_);
  }

 private:
  Error Broken(const SinkSegment& segment, const std::string& message) const {
    return Error(ErrorCode::kInternal,
                 StrCat("the plan is wrong: ", segment.name, ": ", message),
                 {.file = plan_.path});
  }

  void CheckSegment(const SinkSegment& segment) {
    int64_t position = 0;
    for (const SinkPiece& piece : segment.pieces) {
      if (piece.tensor >= held_.size() || piece.length <= 0 ||
          piece.segment_offset < position || piece.tensor_offset < 0) {
        throw Broken(segment, "pieces overlap or make no sense");
      }
      const CheckpointTensor& tensor = source_.tensors()[piece.tensor];
      const int64_t num_elements = tensor.shape.num_elements();
      if (piece.length > segment.num_elements - piece.segment_offset ||
          piece.length > num_elements - piece.tensor_offset) {
        throw Broken(segment, StrCat("a piece of ", tensor.key.ToString(),
                                     " is outside"));
      }
      if (!CanConvert(tensor.dtype, segment.dtype, segment.scale)) {
        throw Error(
            ErrorCode::kUnsupported,
            StrCat("a tensor of ", DTypeName(tensor.dtype),
                   " cannot be written as ", DTypeName(segment.dtype)),
            {.file = source_.info().path, .tensor = tensor.key.ToString()});
      }
      position = piece.segment_offset + piece.length;
      held_[piece.tensor].Add(
          {piece.tensor_offset, piece.tensor_offset + piece.length});
    }
  }

  // Every element of what is taken has one place in the source.
  void CheckSource() const {
    for (size_t i = 0; i < held_.size(); ++i) {
      if (held_[i].empty()) continue;
      const CheckpointTensor& tensor = source_.tensors()[i];
      const Coverage coverage =
          CheckCoverage(source_.fragments(i), tensor.shape.num_elements());
      if (!coverage.complete()) {
        throw Error(
            ErrorCode::kDataLoss,
            "the source's pieces do not give each element once",
            {.file = source_.info().path, .tensor = tensor.key.ToString()});
      }
    }
  }

  void CheckNothingElseIsLost() {
    std::vector<bool> lost(held_.size(), false);
    for (const SinkLoss& loss : plan_.losses) {
      for (const size_t tensor : loss.tensors) lost.at(tensor) = true;
    }
    const TensorIndex index(source_);
    for (size_t i = 0; i < held_.size(); ++i) {
      const CheckpointTensor& tensor = source_.tensors()[i];
      // What the source lacks, the target may lack, too.
      HeldRanges accounted = held_[i];
      for (const ElementRange& range : tensor.missing) accounted.Add(range);
      const auto gap = accounted.FirstGap(tensor.shape.num_elements());
      if (!gap || lost[i]) continue;
      const auto master = MasterOf(index, tensor);
      if (held_[i].empty() && master && !lost[*master]) {
        if (!tensor.derived) plan_.implied_weights.push_back({i, *master});
        continue;
      }
      throw Error(ErrorCode::kInternal,
                  StrCat("the plan is wrong: element ", *gap,
                         " is in no file and in no list of losses"),
                  {.file = plan_.path, .tensor = tensor.key.ToString()});
    }
  }

  // Of a compute weight that follows from it.
  std::optional<size_t> MasterOf(const TensorIndex& index,
                                 const CheckpointTensor& tensor) const {
    if (tensor.key.kind != kWeight) return std::nullopt;
    const auto found = index.Find({tensor.key.parameter, std::string(kMaster)});
    if (!found) return std::nullopt;
    const CheckpointTensor& master = source_.tensors()[*found];
    const bool follows =
        master.shape.num_elements() == tensor.shape.num_elements() &&
        CanConvert(master.dtype, tensor.dtype, 1);
    return follows ? found : std::nullopt;
  }

  void AddMissing() {
    for (size_t i = 0; i < held_.size(); ++i) {
      const CheckpointTensor& tensor = source_.tensors()[i];
      int64_t count = 0;
      for (const ElementRange& range : tensor.missing) {
        count += held_[i].NumElementsIn(range);
      }
      if (count == 0) continue;
      plan_.losses.push_back(
          {.kind = kMissingLoss,
           .message = StrCat(Printable(tensor.key.ToString()), ": ", count,
                             count == 1 ? " element" : " elements",
                             " that the source does not hold, from ",
                             tensor.missing.front().begin, " on: zeros"),
           .tensors = {i}});
    }
  }

  const Checkpoint& source_;
  const CheckpointSink& sink_;
  std::vector<HeldRanges> held_;
  ConversionPlan plan_;
};

}  // namespace

std::vector<SinkLoss> ConversionPlan::Refused(
    const std::vector<std::string>& kinds) const {
  std::vector<SinkLoss> refused;
  for (const SinkLoss& loss : losses) {
    const bool allowed =
        std::find(kinds.begin(), kinds.end(), loss.kind) != kinds.end();
    if (!loss.is_chosen && !allowed) refused.push_back(loss);
  }
  return refused;
}

ConversionPlan PlanConversion(const Checkpoint& source,
                              const CheckpointSink& sink) {
  return Planner(source, sink).Run();
}

}  // namespace muonstore
