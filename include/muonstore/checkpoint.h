// The logical state of a checkpoint, whatever its format, stage or rank count.
//
// What: `Checkpoint` is what a format's reader gives: the tensors by name and
//   kind with their logical shapes, where each of their elements lies, the
//   param groups with their hyper-parameters, counters, and what is carried
//   along. Tools and converters work on this interface alone.
// Ownership: a Checkpoint owns its tables and opens its files when it reads;
//   it writes, locks and creates nothing.
// Threads: const member functions may run on many threads at once.
// Failures: Error; see error.h. Opening gives everything that headers say; a
//   read may still find damage.

#ifndef MUONSTORE_CHECKPOINT_H_
#define MUONSTORE_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "muonstore/copy_plan.h"
#include "muonstore/dtype.h"
#include "muonstore/error.h"
#include "muonstore/fragment.h"
#include "muonstore/parameter.h"
#include "muonstore/shape.h"
#include "muonstore/state_kind.h"

namespace muonstore {

namespace torchfile {
class CarriedState;
}  // namespace torchfile

// A hyper-parameter or counter as the file holds it; std::monostate is Python's
// None.
using Scalar = std::variant<std::monostate, bool, int64_t, double, std::string,
                            std::vector<double>>;

// "0.02", "[0.9, 0.95]", "none".
std::string ScalarToString(const Scalar& value);

// Insertion-ordered name -> value.
using ScalarMap = std::vector<std::pair<std::string, Scalar>>;

// The param groups of the run, in the file's order.
struct ParamGroup {
  // "muon-params"; "group 0" where the file has no name.
  std::string name;
  Optimizer optimizer = Optimizer::kOther;
  // lr, betas, momentum, ... as stored; each group keeps its own.
  ScalarMap hyper_parameters;
  // The step that the group's state counts; absent for Muon, which has none.
  std::optional<int64_t> step;
  int64_t num_parameters = 0;
  // Of the parameters' logical shapes, without any padding.
  int64_t num_elements = 0;
};

// Which recurrence the momentum follows: they differ by the constant (1 - mu).
enum class MomentumConvention {
  kLerp,        // M = mu * M + (1 - mu) * G  (DeepSpeed, torch.optim.Muon)
  kAccumulate,  // M = mu * M + G             (dion, Moonlight)
};

// In which unit the momentum is stored. Nothing is rescaled on reading.
enum class MomentumUnit {
  kTrue,        // Unscaled gradients.
  kLossScaled,  // Each gradient times the loss scale of its step.
};

// How the momentum of a checkpoint is to be read.
struct MomentumRecord {
  MomentumConvention convention = MomentumConvention::kLerp;
  MomentumUnit unit = MomentumUnit::kTrue;
  // kLossScaled: the factor in all of the momentum, where the file proves it.
  std::optional<double> unit_scale;
  // kLossScaled: the scale that the file names; it may have changed since the
  // momentum was accumulated, so it is no substitute for unit_scale.
  std::optional<double> scale_in_file;
  // For people: "whole matrices", "flat partition", "sub-group partition".
  std::string stored_form;
};

// One contiguous buffer of one rank.
struct Segment {
  int32_t rank = 0;
  StateKind kind;
  // -1: the segment holds one tensor that is in no flat group.
  int32_t flat_group = -1;
  DType dtype = DType::kF32;
  int64_t num_elements = 0;
  // Path it is read from, for messages.
  std::string file;
};

// One tensor of the logical state.
struct CheckpointTensor {
  TensorKey key;
  Shape shape;
  // As stored; ReadTensor gives this dtype.
  DType dtype = DType::kF32;
  // Index into CheckpointInfo::groups; -1: none (frozen parameters, buffers).
  int32_t group = -1;
  Optimizer optimizer = Optimizer::kNone;
  // Bytes of its elements over all ranks, replicas counted.
  uint64_t stored_bytes = 0;
  // A compute weight that no file stores (ZeRO-3): it is round(master), so
  // fragments() are the master's and ReadTensor rounds to `dtype`.
  bool derived = false;
  // Elements that the file should hold and does not (for example truncated by
  // the writer). Reading them is an error.
  std::vector<ElementRange> missing;
};

// Something that a reader or a user should know; not necessarily a fault.
struct Finding {
  // Only kFault means that the checkpoint is not whole.
  enum class Severity { kNote, kWarning, kFault };
  Severity severity = Severity::kNote;
  // Stable identifier for scripts: "checksum", "replicas_differ", ...
  std::string code;
  std::string message;
  ErrorPlace place;

  static Finding FromError(const Error& error, std::string code);
  // "<file>: tensor <t>: ...", as Error::what().
  std::string ToString() const;
};

// A value that is carried along and not interpreted.
struct CarriedValue {
  // "client_state.rng", "lr_scheduler", ...
  std::string path;
  // Type and short rendering.
  std::string summary;
};

// What the headers say of a checkpoint as a whole. Strings are empty where the
// format has no such thing.
struct CheckpointInfo {
  std::string format;    // "deepspeed", "torch file".
  std::string producer;  // "DeepSpeed 0.19.8".
  // The tag directory or file that was opened, and the tag's name.
  std::string path;
  std::string tag;
  // Another one for every save, where the format has such a thing.
  std::string identity;
  std::optional<int64_t> step;
  // ZeRO stage: 1, 2 or 3.
  std::optional<int32_t> stage;
  // The writing class, as deduced: "DeepSpeedZeroOptimizer", ...
  std::string optimizer_class;
  int32_t num_ranks = 1;
  std::string precision;  // "bf16", "fp16", "fp32".
  std::string offload;    // "none", "cpu", "nvme".
  // Of the Muon groups: "sorted by shape", "module", "both", "other".
  std::string order;
  std::vector<ParamGroup> groups;
  // Absent where no momentum is stored.
  std::optional<MomentumRecord> momentum;
  // global_steps, skipped_steps, the loss scale, ...
  ScalarMap counters;
  // Parameters, tied names and buffers in the module's order, where the format
  // keeps it.
  std::vector<std::string> module_order;
  // Tied parameters: dropped name -> kept name.
  std::map<std::string, std::string> aliases;
  // Names of the parameters without optimizer state.
  std::vector<std::string> frozen;
  // How parameters are seen as matrices, where the format records it: name ->
  // MatrixLayout::ToString(). Those that are not listed are whole.
  std::map<std::string, std::string> matrix_layouts;
  std::vector<CarriedValue> carried;
  // Seen while opening.
  std::vector<Finding> findings;
  // Of all files of the checkpoint.
  uint64_t total_bytes = 0;
  int64_t num_files = 0;
};

// A format's reader gives one of these; see open.h for how to get it.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  Checkpoint() = default;
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  virtual const CheckpointInfo& info() const = 0;
  // Every stored tensor: per param group in flat order, then those in no group.
  virtual std::span<const CheckpointTensor> tensors() const = 0;
  // Where the elements of a tensor lie; `tensor` indexes tensors(). Each
  // element is in at most one fragment, that of the rank which owns it.
  virtual std::vector<Fragment> fragments(size_t tensor) const = 0;
  // Every buffer that fragments() may name, rank by rank.
  virtual std::span<const Segment> segments() const = 0;
  // Reads out.size() / SizeBytes(dtype) elements of a segment, in its dtype,
  // from `first_element` on. Error(kDataLoss) where the file ends before.
  virtual void ReadSegment(int32_t segment, int64_t first_element,
                           std::span<std::byte> out) const = 0;
  // What is carried along, for the writers of other formats; null: nothing.
  virtual const torchfile::CarriedState* carried_state() const {
    return nullptr;
  }
};

// Index of a tensor, or nullopt. Tied names resolve to the kept one.
std::optional<size_t> FindTensor(const Checkpoint& checkpoint,
                                 const TensorKey& key);

// The ranks that own elements of a tensor, ascending.
std::vector<int32_t> RanksOf(const Checkpoint& checkpoint, size_t tensor);

// Reads elements [range.begin, range.end) in row-major order, in the stored
// dtype, into `out` (range.size() * SizeBytes(dtype) bytes). A missing element
// is Error(kDataLoss) that names tensor and range.
void ReadTensor(const Checkpoint& checkpoint, size_t tensor, ElementRange range,
                std::span<std::byte> out);

// The same, widened to float or double.
std::vector<float> ReadTensorF32(const Checkpoint& checkpoint, size_t tensor,
                                 ElementRange range);
std::vector<double> ReadTensorF64(const Checkpoint& checkpoint, size_t tensor,
                                  ElementRange range);

}  // namespace muonstore

#endif  // MUONSTORE_CHECKPOINT_H_
