// `tensors`: what is stored of each tensor, by headers alone.
#include "src/base/str.h"
#include "tools/ckpt_inspect/command.h"
#include "tools/ckpt_inspect/select.h"
#include "tools/ckpt_inspect/tensors_output.h"
#include "tools/common/table.h"
#include "tools/common/units.h"

namespace muonstore::tools {
namespace {

struct TensorsFlags {
  SourceFlags source;
  Selection selection;
};

int64_t NumMissing(const CheckpointTensor& tensor) {
  int64_t count = 0;
  for (const ElementRange& range : tensor.missing) count += range.size();
  return count;
}

std::string GroupName(const Checkpoint& checkpoint, int32_t group) {
  const auto& groups = checkpoint.info().groups;
  const auto index = static_cast<size_t>(group);
  return group < 0 || index >= groups.size() ? "-" : groups[index].name;
}

std::string AsText(const Checkpoint& checkpoint,
                   const std::vector<size_t>& tensors) {
  Table table({{"parameter"},
               {"state"},
               {"shape"},
               {"dtype"},
               {"group"},
               {"optimizer"},
               {"ranks"},
               {"stored", kRight},
               {""}});
  for (const size_t i : tensors) {
    const CheckpointTensor& tensor = checkpoint.tensors()[i];
    const int64_t missing = NumMissing(tensor);
    table.AddRow({Printable(tensor.key.parameter), Printable(tensor.key.kind),
                  tensor.shape.ToString(), std::string(DTypeName(tensor.dtype)),
                  Printable(GroupName(checkpoint, tensor.group)),
                  std::string(OptimizerName(tensor.optimizer)),
                  FormatRanges(RanksOf(checkpoint, i)),
                  HumanBytes(tensor.stored_bytes),
                  missing == 0 ? "" : StrCat(missing, " elements missing")});
  }
  return table.ToString() +
         Counted(static_cast<int64_t>(tensors.size()), "tensor", "tensors") +
         "\n";
}

}  // namespace

Json TensorsJson(const Checkpoint& checkpoint,
                 const std::vector<size_t>& tensors) {
  Json json = JsonEnvelope("tensors");
  json["path"] = checkpoint.info().path;
  json["tensors"] = Json::array();
  for (const size_t i : tensors) {
    const CheckpointTensor& tensor = checkpoint.tensors()[i];
    Json entry;
    entry["parameter"] = tensor.key.parameter;
    entry["state"] = tensor.key.kind;
    entry["shape"] = tensor.shape.dims();
    entry["dtype"] = DTypeName(tensor.dtype);
    entry["group"] = tensor.group < 0
                         ? Json(nullptr)
                         : Json(GroupName(checkpoint, tensor.group));
    entry["optimizer"] = OptimizerName(tensor.optimizer);
    entry["ranks"] = RanksOf(checkpoint, i);
    entry["stored_bytes"] = tensor.stored_bytes;
    entry["num_missing"] = NumMissing(tensor);
    json["tensors"].push_back(std::move(entry));
  }
  return json;
}

Command AddTensors(CLI::App& root) {
  auto flags = std::make_shared<TensorsFlags>();
  CLI::App* app = AddCommand(
      root, "tensors",
      {.brief = "The stored tensors, by headers only",
       .details = "Name, state, shape, dtype, group, optimizer, the ranks that "
                  "hold elements\n"
                  "of it, and the bytes that it takes (replicas counted). No "
                  "payload is read.\n",
       .examples =
           "  ckpt-inspect tensors runs/7 --state momentum\n"
           "  ckpt-inspect tensors runs/7/step500 --param '*.qkv.weight'\n"
           "  ckpt-inspect tensors runs/7 --json | jq '.tensors[].shape'\n"});
  flags->source.AddPath(*app);
  flags->source.AddTag(*app);
  app->add_option("--param", flags->selection.param,
                  "Parameters to list (GLOB; * matches dots, too)");
  app->add_option("--state", flags->selection.state,
                  "Kind of state: master, momentum, exp_avg, exp_avg_sq, "
                  "weight, buffer, ... (also fp32, momentum_buffer, variance)");
  flags->source.AddAllowLoss(*app);
  flags->source.AddJson(*app);
  return {app, [flags](Session& session) {
            const auto checkpoint = flags->source.Open(session);
            const auto tensors = SelectTensors(*checkpoint, flags->selection);
            session.out.Write(flags->source.json
                                  ? Render(TensorsJson(*checkpoint, tensors))
                                  : AsText(*checkpoint, tensors));
            return ExitCode::kOk;
          }};
}

}  // namespace muonstore::tools
