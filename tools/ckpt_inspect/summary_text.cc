#include "src/base/str.h"
#include "tools/ckpt_inspect/state_totals.h"
#include "tools/ckpt_inspect/summary_output.h"
#include "tools/common/table.h"
#include "tools/common/units.h"

namespace muonstore::tools {
namespace {

// "label     value" lines; empty values are left out.
class Facts {
 public:
  void Add(const std::string& label, const std::string& value) {
    if (!value.empty()) table_.AddRow({label, Printable(value)});
  }
  std::string ToString() const { return table_.ToString(); }

 private:
  Table table_{{{""}, {""}}};
};

std::string Join(const std::vector<std::string>& parts) {
  return JoinNames(parts, parts.size());
}

std::string Values(const ScalarMap& values) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : values) {
    parts.push_back(StrCat(name, " ", ScalarToString(value)));
  }
  return Join(parts);
}

std::string StepText(const CheckpointInfo& info) {
  std::string text = info.tag;
  if (info.step) text += StrCat(text.empty() ? "" : ", ", "step ", *info.step);
  return text;
}

std::string PartitionText(const CheckpointInfo& info) {
  std::vector<std::string> parts;
  if (info.stage) parts.push_back(StrCat("ZeRO stage ", *info.stage));
  parts.push_back(Counted(info.num_ranks, "rank", "ranks"));
  if (!info.optimizer_class.empty()) parts.push_back(info.optimizer_class);
  return Join(parts);
}

std::string PrecisionText(const CheckpointInfo& info) {
  std::vector<std::string> parts;
  if (!info.precision.empty()) parts.push_back(info.precision);
  if (!info.offload.empty()) parts.push_back("offload " + info.offload);
  if (info.order == "both") {
    parts.emplace_back("order sorted by shape, which is the module's");
  } else if (!info.order.empty()) {
    parts.push_back("order " + info.order);
  }
  return Join(parts);
}

// "0.95", or "0.95, 0.9" where Muon groups differ.
std::string MuText(const CheckpointInfo& info) {
  std::vector<std::string> values;
  for (const ParamGroup& group : info.groups) {
    if (group.optimizer != Optimizer::kMuon) continue;
    for (const auto& [name, value] : group.hyper_parameters) {
      const std::string text = ScalarToString(value);
      if (name != "momentum") continue;
      if (values.empty() || values.back() != text) values.push_back(text);
    }
  }
  return Join(values);
}

std::string MomentumText(const CheckpointInfo& info) {
  if (!info.momentum) return "none";
  const MomentumRecord& record = *info.momentum;
  std::string text = record.convention == MomentumConvention::kLerp
                         ? "lerp M = mu M + (1 - mu) G"
                         : "accumulate M = mu M + G";
  const std::string mu = MuText(info);
  if (!mu.empty()) text += ", mu " + mu;
  if (record.unit == MomentumUnit::kTrue) {
    text += ", true gradients";
  } else if (record.unit_scale) {
    text += StrCat(", gradients times ", *record.unit_scale);
  } else {
    text += ", gradients times a loss scale that the file does not prove";
    if (record.scale_in_file) {
      text += StrCat(" (it names ", *record.scale_in_file, ")");
    }
  }
  return StrCat(text, ", stored as ", record.stored_form);
}

std::string GroupsText(const CheckpointInfo& info) {
  Table table({{"group"},
               {"optimizer"},
               {"step", kRight},
               {"parameters", kRight},
               {"elements", kRight},
               {"hyper-parameters"}});
  for (const ParamGroup& group : info.groups) {
    table.AddRow(
        {Printable(group.name), std::string(OptimizerName(group.optimizer)),
         group.step ? StrCat(*group.step) : "-",
         HumanCount(group.num_parameters), HumanCount(group.num_elements),
         Printable(Values(group.hyper_parameters))});
  }
  return table.empty() ? "" : "\n" + table.ToString();
}

std::string StateText(const Checkpoint& checkpoint) {
  Table table({{"state"},
               {"dtype"},
               {"tensors", kRight},
               {"elements", kRight},
               {"stored", kRight}});
  for (const StateTotal& total : StateTotals(checkpoint)) {
    table.AddRow({Printable(total.kind), std::string(DTypeName(total.dtype)),
                  HumanCount(total.num_tensors), HumanCount(total.num_elements),
                  HumanBytes(total.stored_bytes)});
  }
  return table.empty() ? "" : "\n" + table.ToString();
}

std::string TiedText(const CheckpointInfo& info) {
  std::vector<std::string> pairs;
  for (const auto& [dropped, kept] : info.aliases) {
    pairs.push_back(StrCat(dropped, " -> ", kept));
  }
  return Join(pairs);
}

std::string CountOrNames(const std::vector<std::string>& names, bool verbose) {
  if (names.empty()) return "";
  return verbose ? Join(names)
                 : Counted(static_cast<int64_t>(names.size()), "parameter",
                           "parameters");
}

std::string CarriedText(const CheckpointInfo& info) {
  std::string out;
  for (const CarriedValue& value : info.carried) {
    out += StrCat("  ", Printable(value.path), ": ", Printable(value.summary),
                  "\n");
  }
  return out;
}

std::string FindingsText(const CheckpointInfo& info) {
  std::string out;
  for (const Finding& finding : info.findings) {
    out += StrCat(SeverityName(finding.severity), " ", finding.code, ": ",
                  Printable(finding.ToString()), "\n");
  }
  return out.empty() ? "" : "\n" + out;
}

}  // namespace

std::string SummaryText(const Checkpoint& checkpoint, bool verbose) {
  const CheckpointInfo& info = checkpoint.info();
  Facts facts;
  facts.Add("checkpoint", info.path);
  facts.Add("format", info.producer.empty()
                          ? info.format
                          : StrCat(info.format, ", ", info.producer));
  facts.Add("tag", StepText(info));
  facts.Add("partition", PartitionText(info));
  facts.Add("precision", PrecisionText(info));
  facts.Add("size", StrCat(HumanBytes(info.total_bytes), " in ",
                           Counted(info.num_files, "file", "files")));
  facts.Add("momentum", MomentumText(info));
  facts.Add("tied", TiedText(info));
  facts.Add("frozen", CountOrNames(info.frozen, verbose));
  facts.Add("counters", Values(info.counters));
  if (!info.carried.empty()) {
    facts.Add(
        "carried along",
        StrCat(Counted(static_cast<int64_t>(info.carried.size()), "value",
                       "values"),
               " not interpreted", verbose ? "" : " (--verbose lists them)"));
  }
  std::string out = facts.ToString();
  if (verbose) out += CarriedText(info);
  out += GroupsText(info) + StateText(checkpoint) + FindingsText(info);
  if (info.num_ranks > 1) {
    out +=
        "\nFrom the headers of rank 0; the other ranks by name and size. "
        "'verify' reads all.\n";
  }
  return out;
}

}  // namespace muonstore::tools
