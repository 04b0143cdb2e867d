// What filling a live run needs of a checkpoint: tensors by exact name, their
// values as float32, the momentum's unit, and what is carried along.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/deepspeed/momentum_unit.h"
#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"
#include "muonstore/error.h"
#include "muonstore/partitioning.h"
#include "python/src/bindings.h"
#include "python/src/buffers.h"
#include "python/src/interruptible.h"
#include "python/src/values.h"
#include "tools/ckpt_convert/momentum_choice.h"

namespace muonstore::python {
namespace {

namespace nb = nanobind;
using CheckpointPtr = std::shared_ptr<Checkpoint>;

constexpr int64_t kBlockElements = int64_t{4} << 20;

// None, or a dict about the tensor of exactly that name (or tied name).
nb::object Lookup(const CheckpointPtr& checkpoint, const std::string& name,
                  const std::string& kind) {
  const auto index = FindTensor(*checkpoint, {name, kind});
  if (!index) return nb::none();
  const CheckpointTensor& tensor = checkpoint->tensors()[*index];
  nb::dict entry;
  entry["index"] = *index;
  entry["name"] = tensor.key.parameter;
  entry["shape"] = tensor.shape.dims();
  entry["dtype"] = std::string(DTypeName(tensor.dtype));
  entry["torch_dtype"] = std::string(TorchDTypeName(tensor.dtype));
  entry["group"] = tensor.group;
  entry["optimizer"] = std::string(OptimizerName(tensor.optimizer));
  entry["is_whole"] = tensor.missing.empty();
  return entry;
}

// Elements [begin, begin + n) times `factor` into n floats.
void ReadFloats(const CheckpointPtr& checkpoint, size_t index, int64_t begin,
                const nb::object& out, double factor) {
  const WritableBuffer buffer(out);
  const CheckpointTensor& tensor = checkpoint->tensors()[index];
  const std::span<float> floats(reinterpret_cast<float*>(buffer.span().data()),
                                buffer.span().size() / sizeof(float));
  const auto item_bytes = static_cast<size_t>(SizeBytes(tensor.dtype));
  const auto end = begin + static_cast<int64_t>(floats.size());
  RunInterruptible(nb::none(), [&](const Watch& watch) {
    std::vector<std::byte> stored;
    for (int64_t at = begin; at < end; at += kBlockElements) {
      watch.check();
      const int64_t stop = std::min(end, at + kBlockElements);
      const auto count = static_cast<size_t>(stop - at);
      stored.resize(count * item_bytes);
      ReadTensor(*checkpoint, index, {at, stop}, stored);
      const auto part = floats.subspan(static_cast<size_t>(at - begin), count);
      ConvertToF32(tensor.dtype, stored, part);
      if (factor == 1) continue;
      for (float& value : part) {
        value = static_cast<float>(static_cast<double>(value) * factor);
      }
    }
  });
}

// What momentum is multiplied by for a run of that precision and offload, as
// ckpt-convert does it; and what was assumed.
nb::tuple MomentumFactor(const CheckpointPtr& checkpoint,
                         const std::string& precision,
                         const std::string& offload,
                         const std::string& momentum_scale) {
  TargetLayout target{.partitioning = Partitioning::Build({}, {}),
                      .precision = precision,
                      .offload = offload};
  std::vector<std::string> notes;
  target.momentum_scale = tools::ChooseMomentumScale(
      momentum_scale, checkpoint->info(), target, notes);
  const double factor = deepspeed::MomentumFactor(checkpoint->info(), target);
  return nb::make_tuple(factor, notes);
}

nb::object TreeOrNone(const std::optional<torchfile::TreeRef>& tree,
                      const nb::object& finish) {
  return tree ? ToPython(*tree, finish) : nb::none();
}

int32_t NumCarriedRanks(const CheckpointPtr& checkpoint) {
  const torchfile::CarriedState* carried = checkpoint->carried_state();
  return carried == nullptr ? 0 : carried->num_ranks();
}

// (model_states, optim_states) of a rank of the run that saved.
nb::tuple Carried(const CheckpointPtr& checkpoint, int32_t rank,
                  const nb::object& finish) {
  if (rank < 0 || rank >= NumCarriedRanks(checkpoint)) {
    throw Error(ErrorCode::kInvalidArgument,
                "the checkpoint carries nothing of that rank",
                {.file = checkpoint->info().path,
                 .expected = "a rank below " +
                             std::to_string(NumCarriedRanks(checkpoint)),
                 .found = std::to_string(rank)});
  }
  const torchfile::CarriedRank values = checkpoint->carried_state()->rank(rank);
  return nb::make_tuple(TreeOrNone(values.model_states, finish),
                        TreeOrNone(values.optim_states, finish));
}

}  // namespace

void BindLiveRead(nb::module_& module) {
  module.def("lookup", &Lookup, nb::arg("checkpoint"), nb::arg("name"),
             nb::arg("kind"));
  module.def("read_floats", &ReadFloats, nb::arg("checkpoint"),
             nb::arg("index"), nb::arg("begin"), nb::arg("out"),
             nb::arg("factor") = 1.0);
  module.def("momentum_factor", &MomentumFactor, nb::arg("checkpoint"),
             nb::arg("precision"), nb::arg("offload"),
             nb::arg("momentum_scale"));
  module.def("num_carried_ranks", &NumCarriedRanks, nb::arg("checkpoint"));
  module.def("carried", &Carried, nb::arg("checkpoint"), nb::arg("rank"),
             nb::arg("finish"));
}

}  // namespace muonstore::python
