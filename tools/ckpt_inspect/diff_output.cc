#include "tools/ckpt_inspect/diff_output.h"

#include <vector>

#include "src/base/str.h"
#include "tools/common/table.h"
#include "tools/common/units.h"

namespace muonstore::tools {
namespace {

std::string Container(const CheckpointInfo& info) {
  std::string text = Printable(info.path) + "  (" + info.format;
  if (info.stage) text += StrCat(", stage ", *info.stage);
  text += ", " + Counted(info.num_ranks, "rank", "ranks");
  if (!info.offload.empty()) text += ", offload " + info.offload;
  if (info.step) text += StrCat(", step ", *info.step);
  return text + ")\n";
}

// Row-major element -> "[2, 0, 5]".
std::vector<int64_t> Position(const Shape& shape, int64_t element) {
  std::vector<int64_t> position(shape.dims().size());
  for (size_t axis = position.size(); axis-- > 0;) {
    position[axis] = element % shape.dims()[axis];
    element /= shape.dims()[axis];
  }
  return position;
}

std::string PositionText(const TensorDiff& diff) {
  if (!diff.first_element || !diff.shape_a) return "-";
  std::string text;
  for (const int64_t index : Position(*diff.shape_a, *diff.first_element)) {
    text += (text.empty() ? "" : ", ") + StrCat(index);
  }
  return "[" + text + "]";
}

// A value as exact as both checkpoints store it.
std::string Exact(const TensorDiff& diff, const std::optional<double>& value) {
  if (!value) return "-";
  const bool wide = diff.dtype_a == DType::kF64 || diff.dtype_b == DType::kF64;
  return wide ? FormatNumber(*value) : FloatText(*value);
}

// "f32 | bf16", or once where both are the same.
std::string Both(const std::string& a, const std::string& b) {
  return a == b ? a : StrCat(a, " | ", b);
}

std::string DTypes(const TensorDiff& diff) {
  const auto name = [](const std::optional<DType>& dtype) {
    return dtype ? std::string(DTypeName(*dtype)) : std::string("-");
  };
  return Both(name(diff.dtype_a), name(diff.dtype_b));
}

std::string Shapes(const TensorDiff& diff) {
  const auto name = [](const std::optional<Shape>& shape) {
    return shape ? shape->ToString() : std::string("-");
  };
  return Both(name(diff.shape_a), name(diff.shape_b));
}

std::string WorstText(const DiffReport& report) {
  Table table({{"tensor"},
               {"verdict"},
               {"shape"},
               {"dtype"},
               {"differ", kRight},
               {"max abs", kRight},
               {"max rel", kRight},
               {"first at"},
               {"A", kRight},
               {"B", kRight},
               {""}});
  for (const TensorDiff& diff : report.worst) {
    table.AddRow({Printable(diff.key.ToString()),
                  std::string(TensorVerdictName(diff.verdict)), Shapes(diff),
                  DTypes(diff), HumanCount(diff.num_different),
                  ShortNumber(diff.max_abs), ShortNumber(diff.max_rel),
                  PositionText(diff), Exact(diff, diff.first_a),
                  Exact(diff, diff.first_b), diff.note});
  }
  return table.empty() ? "" : table.ToString();
}

std::string CountsText(const DiffReport& report) {
  std::string text;
  for (size_t i = report.counts.size(); i-- > 0;) {
    if (report.counts[i] == 0) continue;
    text += StrCat(text.empty() ? "" : ", ", HumanCount(report.counts[i]), " ",
                   TensorVerdictName(static_cast<TensorVerdict>(i)));
  }
  return "tensors: " + (text.empty() ? "none" : text) + "\n";
}

std::string NotesText(const DiffReport& report) {
  std::string text;
  for (const auto& [note, count] : report.notes) {
    text +=
        StrCat("note ", Counted(count, "tensor", "tensors"), ": ", note, "\n");
  }
  for (const ValueDiff& value : report.values) {
    if (value.is_difference) continue;
    text += StrCat("note ", Printable(value.what), ": ", Printable(value.a),
                   " | ", Printable(value.b), "\n");
  }
  return text;
}

std::string ValuesText(const DiffReport& report) {
  std::string text;
  for (const ValueDiff& value : report.values) {
    if (!value.is_difference) continue;
    text += StrCat("different ", Printable(value.what), ": ",
                   Printable(value.a), " | ", Printable(value.b), "\n");
  }
  return text;
}

Json ContainerJson(const CheckpointInfo& info) {
  Json json;
  json["path"] = info.path;
  json["format"] = info.format;
  json["tag"] = info.tag;
  json["step"] = ToJson(info.step);
  json["stage"] = ToJson(info.stage);
  json["num_ranks"] = info.num_ranks;
  json["offload"] = info.offload;
  return json;
}

Json DiffJson(const TensorDiff& diff) {
  Json json;
  json["parameter"] = diff.key.parameter;
  json["state"] = diff.key.kind;
  json["verdict"] = TensorVerdictName(diff.verdict);
  json["shape_a"] = diff.shape_a ? Json(diff.shape_a->dims()) : Json(nullptr);
  json["shape_b"] = diff.shape_b ? Json(diff.shape_b->dims()) : Json(nullptr);
  json["dtype_a"] =
      diff.dtype_a ? Json(DTypeName(*diff.dtype_a)) : Json(nullptr);
  json["dtype_b"] =
      diff.dtype_b ? Json(DTypeName(*diff.dtype_b)) : Json(nullptr);
  json["num_different"] = diff.num_different;
  json["max_abs"] = ToJson(diff.max_abs);
  json["max_rel"] = ToJson(diff.max_rel);
  json["first_index"] = diff.first_element && diff.shape_a
                            ? Json(Position(*diff.shape_a, *diff.first_element))
                            : Json(nullptr);
  json["first_a"] = ToJson(diff.first_a);
  json["first_b"] = ToJson(diff.first_b);
  json["note"] = diff.note.empty() ? Json(nullptr) : Json(diff.note);
  return json;
}

}  // namespace

std::string DiffText(const CheckpointInfo& a, const CheckpointInfo& b,
                     const DiffReport& report) {
  return "A  " + Container(a) + "B  " + Container(b) + CountsText(report) +
         NotesText(report) + WorstText(report) + ValuesText(report) +
         (report.same_state() ? "the same state\n" : "DIFFERENT state\n");
}

Json DiffJson(const CheckpointInfo& a, const CheckpointInfo& b,
              const DiffReport& report) {
  Json json = JsonEnvelope("diff");
  json["a"] = ContainerJson(a);
  json["b"] = ContainerJson(b);
  json["same_state"] = report.same_state();
  json["counts"] = Json::object();
  for (size_t i = 0; i < report.counts.size(); ++i) {
    const auto verdict = static_cast<TensorVerdict>(i);
    json["counts"][std::string(TensorVerdictName(verdict))] = report.counts[i];
  }
  json["tensors"] = Json::array();
  for (const TensorDiff& diff : report.worst) {
    json["tensors"].push_back(DiffJson(diff));
  }
  json["notes"] = Json::object();
  for (const auto& [note, count] : report.notes) json["notes"][note] = count;
  json["values"] = Json::array();
  for (const ValueDiff& value : report.values) {
    json["values"].push_back({{"what", value.what},
                              {"a", value.a},
                              {"b", value.b},
                              {"is_difference", value.is_difference}});
  }
  return json;
}

}  // namespace muonstore::tools
