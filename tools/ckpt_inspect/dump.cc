// `dump`: the values of one tensor, to the screen or to a .npy file.
#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/inspect/npy.h"
#include "tools/ckpt_inspect/command.h"
#include "tools/ckpt_inspect/row_range.h"
#include "tools/ckpt_inspect/select.h"
#include "tools/ckpt_inspect/tensor_values.h"
#include "tools/common/paths.h"
#include "tools/common/progress.h"
#include "tools/common/units.h"

namespace muonstore::tools {
namespace {

// More values than this go to a file.
constexpr int64_t kMaxPrinted = 1'000'000;

struct DumpFlags {
  SourceFlags source;
  Selection selection;
  std::string rows;
  std::string output;
};

// The tensor that was asked for, and how it is told about.
struct Dump {
  const Checkpoint& checkpoint;
  size_t index;
  RowRange rows;
  std::vector<int64_t> dims;

  const CheckpointTensor& tensor() const { return checkpoint.tensors()[index]; }
};

Dump Find(const Checkpoint& checkpoint, const DumpFlags& flags) {
  const size_t index = SelectTensor(checkpoint, flags.selection);
  const Shape& shape = checkpoint.tensors()[index].shape;
  Dump dump{checkpoint, index, ParseRows(flags.rows, shape.num_rows()),
            shape.dims()};
  if (dump.dims.empty() && dump.rows.size() != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "a scalar has no rows to leave out");
  }
  if (!dump.dims.empty()) dump.dims[0] = dump.rows.size();
  return dump;
}

Json Header(const Dump& dump) {
  Json json = JsonEnvelope("dump");
  json["path"] = dump.checkpoint.info().path;
  json["parameter"] = dump.tensor().key.parameter;
  json["state"] = dump.tensor().key.kind;
  json["dtype"] = DTypeName(dump.tensor().dtype);
  json["shape"] = dump.dims;
  json["rows"] = {dump.rows.begin, dump.rows.end};
  return json;
}

void Print(const Dump& dump, bool json, Session& session) {
  const CheckpointTensor& tensor = dump.tensor();
  const int64_t row = tensor.shape.row_elements();
  const ElementRange range{dump.rows.begin * row, dump.rows.end * row};
  if (range.size() > kMaxPrinted) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(range.size(),
                       " values are too many to print; -o FILE "
                       "writes them, --rows takes some"),
                {.tensor = tensor.key.ToString()});
  }
  std::vector<std::byte> bytes(static_cast<size_t>(range.size()) *
                               static_cast<size_t>(SizeBytes(tensor.dtype)));
  ReadTensor(dump.checkpoint, dump.index, range, bytes);
  if (json) {
    Json object = Header(dump);
    object["values"] = TensorJson(tensor.dtype, dump.dims, bytes);
    session.out.Write(Render(object));
    return;
  }
  session.out.Write(StrCat(
      Printable(tensor.key.ToString()), " ", tensor.shape.ToString(), " ",
      DTypeName(tensor.dtype), ", rows ", dump.rows.begin, ":", dump.rows.end,
      "\n", TensorText(tensor.dtype, dump.dims, bytes), "\n"));
}

// Sources are only read.
void RefuseToOverwrite(const CheckpointInfo& source,
                       const std::string& output) {
  if (IsInsideOrEqual(Canonical(output), Canonical(source.path))) {
    throw Error(ErrorCode::kInvalidArgument,
                "-o names a place in the checkpoint itself, which is only read",
                {.file = output});
  }
}

void Save(const Dump& dump, const DumpFlags& flags, Session& session) {
  RefuseToOverwrite(dump.checkpoint.info(), flags.output);
  NpyResult result;
  {
    ProgressLine progress(StderrIsTerminal());
    const auto show = progress.callback();
    const Interrupts::Deferral deferral(session.interrupts);
    result = WriteNpy(session.fs, dump.checkpoint,
                      {.path = flags.output,
                       .tensor = dump.index,
                       .rows = dump.rows,
                       .progress = [&](uint64_t done, uint64_t total) {
                         session.interrupts.ThrowIfInterrupted();
                         if (show) show(done, total);
                       }});
  }
  if (flags.source.json) {
    Json json = Header(dump);
    json["file"] = flags.output;
    json["descr"] = result.descr;
    json["widened"] = result.widened;
    json["size_bytes"] = result.size_bytes;
    session.out.Write(Render(json));
    return;
  }
  session.out.Write(
      StrCat("wrote ", Printable(flags.output), ": ",
             Shape(dump.dims).ToString(), " ", result.descr,
             result.widened ? StrCat(" (widened from ",
                                     DTypeName(dump.tensor().dtype), ", exact)")
                            : "",
             ", ", HumanBytes(result.size_bytes), "\n"));
}

}  // namespace

Command AddDump(CLI::App& root) {
  auto flags = std::make_shared<DumpFlags>();
  CLI::App* app = AddCommand(
      root, "dump",
      {.brief = "The values of one tensor, on the screen or as a .npy file",
       .details = "Types that NumPy lacks (bf16, f8) are widened exactly. The "
                  "file appears whole\n"
                  "or not at all. Text is shortened as NumPy does it; --json "
                  "has every value.\n",
       .examples =
           "  ckpt-inspect dump runs/7 --param blocks.0.qkv.weight --state "
           "momentum\n"
           "  ckpt-inspect dump runs/7 --param embed.weight --state master \\\n"
           "      --rows 0:1000 -o embed.npy\n"});
  flags->source.AddPath(*app);
  flags->source.AddTag(*app);
  app->add_option("--param", flags->selection.param,
                  "Parameter, by its name or a GLOB that matches no other")
      ->required();
  app->add_option("--state", flags->selection.state, "Kind of state")
      ->required();
  app->add_option("--rows", flags->rows,
                  "Half-open range of the first dimension, as in Python: 2:5, "
                  ":10, -3:");
  app->add_option("-o,--output", flags->output, "Write a .npy file");
  flags->source.AddAllowLoss(*app);
  flags->source.AddJson(*app);
  return {app, [flags](Session& session) {
            const auto checkpoint = flags->source.Open(session);
            const Dump dump = Find(*checkpoint, *flags);
            if (flags->output.empty()) {
              Print(dump, flags->source.json, session);
            } else {
              Save(dump, *flags, session);
            }
            return ExitCode::kOk;
          }};
}

}  // namespace muonstore::tools
