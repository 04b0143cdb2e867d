// One checkpoint: headers, tensors, values.
#include "muonstore/checkpoint.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muonstore/error.h"
#include "muonstore/file_system.h"
#include "muonstore/open.h"
#include "python/src/bindings.h"
#include "python/src/buffers.h"
#include "python/src/interruptible.h"
#include "src/base/str.h"
#include "tools/ckpt_inspect/select.h"
#include "tools/ckpt_inspect/summary_output.h"
#include "tools/ckpt_inspect/tensors_output.h"

namespace muonstore::python {
namespace {

namespace nb = nanobind;
using CheckpointPtr = std::shared_ptr<Checkpoint>;

// Between looks for a signal.
constexpr int64_t kReadElements = int64_t{16} << 20;

CheckpointPtr Open(const std::filesystem::path& path, const std::string& tag,
                   bool allow_loss, bool rank_zero_only) {
  CheckpointPtr checkpoint;
  RunInterruptible(nb::none(), [&](const Watch&) {
    checkpoint = OpenCheckpoint(PosixFileSystem(), path.string(),
                                {.tag = tag,
                                 .allow_loss = allow_loss,
                                 .headers_of_rank_zero_only = rank_zero_only});
  });
  return checkpoint;
}

// The one tensor of a name, or of a glob that one matches.
size_t IndexOf(const Checkpoint& checkpoint,
               const tools::Selection& selection) {
  const auto index = FindTensor(
      checkpoint, {selection.param, CanonicalStateKind(selection.state)});
  if (index) return *index;
  try {
    static_cast<void>(tools::SelectTensors(checkpoint, selection));
  } catch (const Error& error) {
    // For the tool it is what was typed that is wrong.
    throw Error(ErrorCode::kNotFound, error.message(), error.place());
  }
  return tools::SelectTensor(checkpoint, selection);
}

// (index, shape, dtype, torch's dtype) of the one tensor of that name and kind.
nb::tuple Find(const CheckpointPtr& checkpoint, const std::string& name,
               const std::string& state) {
  const size_t index = IndexOf(*checkpoint, {.param = name, .state = state});
  const CheckpointTensor& tensor = checkpoint->tensors()[index];
  return nb::make_tuple(index, tensor.shape.dims(),
                        std::string(DTypeName(tensor.dtype)),
                        std::string(TorchDTypeName(tensor.dtype)));
}

// Elements [begin, begin + n) into n elements of memory, block by block.
void Read(const CheckpointPtr& checkpoint, size_t index, int64_t begin,
          const nb::object& out) {
  const WritableBuffer buffer(out);
  const CheckpointTensor& tensor = checkpoint->tensors()[index];
  const auto item_bytes = static_cast<size_t>(SizeBytes(tensor.dtype));
  const auto end =
      begin + static_cast<int64_t>(buffer.span().size() / item_bytes);
  RunInterruptible(nb::none(), [&](const Watch& watch) {
    for (int64_t at = begin; at < end; at += kReadElements) {
      watch.check();
      const int64_t stop = std::min(end, at + kReadElements);
      ReadTensor(
          *checkpoint, index, {at, stop},
          buffer.span().subspan(static_cast<size_t>(at - begin) * item_bytes,
                                static_cast<size_t>(stop - at) * item_bytes));
    }
  });
}

}  // namespace

void BindCheckpoint(nb::module_& module) {
  nb::class_<Checkpoint>(module, "Checkpoint")
      .def_static("open", &Open, nb::arg("path"), nb::kw_only(),
                  nb::arg("tag") = "", nb::arg("allow_loss") = false,
                  nb::arg("rank_zero_only") = false)
      .def_prop_ro("path",
                   [](const Checkpoint& it) {
                     return std::filesystem::path(it.info().path);
                   })
      .def_prop_ro("tag", [](const Checkpoint& it) { return it.info().tag; })
      .def("summary_json",
           [](const Checkpoint& it) {
             return tools::Render(tools::SummaryJson(it));
           })
      .def(
          "tensors_json",
          [](const Checkpoint& it, const std::string& param,
             const std::string& state) {
            const auto chosen =
                tools::SelectTensors(it, {.param = param, .state = state});
            return tools::Render(tools::TensorsJson(it, chosen));
          },
          nb::arg("param"), nb::arg("state"))
      .def("find", &Find, nb::arg("name"), nb::arg("state"))
      .def("read", &Read, nb::arg("index"), nb::arg("begin"), nb::arg("out"));
}

}  // namespace muonstore::python
