#include "formats/deepspeed/describe.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/deepspeed/gaps.h"
#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

std::string PrecisionOf(const Parts& parts) {
  if (parts.directory.bf16) {
    return "bf16";
  }
  return parts.model->config.fp16 ? "fp16" : "fp32";
}

// DeepSpeed deals parameters to ranks in turn: bucket r holds those whose index
// is r modulo the number of ranks.
std::vector<size_t> DealtOrder(const std::vector<size_t>& order,
                               int32_t num_ranks) {
  std::vector<size_t> dealt;
  const auto step = static_cast<size_t>(num_ranks);
  for (size_t bucket = 0; bucket < step; ++bucket) {
    for (size_t i = bucket; i < order.size(); i += step) {
      dealt.push_back(order[i]);
    }
  }
  return dealt;
}

// Where the Muon parameters stand in the file, against both orders that
// DeepSpeed uses.
class OrderOfMuonGroups {
 public:
  explicit OrderOfMuonGroups(const Parts& parts) : parts_(parts) {
    for (size_t i = 0; i < parts.model->module.size(); ++i) {
      module_index_.emplace(parts.model->module[i].name, i);
    }
  }

  std::string Run() {
    const Layout& layout = *parts_.layout;
    for (size_t g = 0; g < layout.groups.size(); ++g) {
      if (layout.groups[g].optimizer == Optimizer::kMuon) {
        CheckGroup(static_cast<int32_t>(g));
      }
    }
    if (!any_) {
      return "module";
    }
    if (sorted_ && module_) {
      return "both";
    }
    if (!sorted_ && !module_) {
      return "other";
    }
    return sorted_ ? "sorted by shape" : "module";
  }

 private:
  void CheckGroup(int32_t group) {
    any_ = true;
    const std::vector<ParameterSpec>& specs = parts_.layout->specs;
    std::vector<size_t> in_file;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].group == group) {
        in_file.push_back(i);
      }
    }
    std::vector<size_t> by_module = in_file;
    std::stable_sort(by_module.begin(), by_module.end(),
                     [&](size_t a, size_t b) {
                       return ModuleIndex(specs[a]) < ModuleIndex(specs[b]);
                     });
    std::vector<size_t> by_shape = by_module;
    std::stable_sort(by_shape.begin(), by_shape.end(), [&](size_t a, size_t b) {
      return specs[a].shape > specs[b].shape;
    });
    if (parts_.model->config.round_robin && parts_.ranks[0].stage < 3) {
      by_shape = DealtOrder(by_shape, parts_.directory.num_ranks());
      by_module = DealtOrder(by_module, parts_.directory.num_ranks());
    }
    sorted_ = sorted_ && in_file == by_shape;
    module_ = module_ && in_file == by_module;
  }

  size_t ModuleIndex(const ParameterSpec& spec) const {
    const auto it = module_index_.find(spec.name);
    return it == module_index_.end() ? module_index_.size() : it->second;
  }

  const Parts& parts_;
  std::unordered_map<std::string, size_t> module_index_;
  bool any_ = false;
  bool sorted_ = true;
  bool module_ = true;
};

// The dynamic scaler doubles after scale_window steps without overflow, so the
// scale that it names is proven to be that of all gradients only before that.
std::optional<double> ProvenScale(const LossScale& scale) {
  if (!scale.dynamic) {
    return scale.scale;
  }
  const auto counter = [&](std::string_view name) -> std::optional<int64_t> {
    for (const auto& [key, value] : scale.counters) {
      if (key == name && std::holds_alternative<int64_t>(value)) {
        return std::get<int64_t>(value);
      }
    }
    return std::nullopt;
  };
  const auto iterations = counter("cur_iter");
  const auto window = counter("scale_window");
  const bool never_changed = counter("last_overflow_iter") == -1 &&
                             iterations && window && *iterations <= *window;
  return never_changed ? std::optional(scale.scale) : std::nullopt;
}

std::optional<MomentumRecord> MomentumOf(const Parts& parts) {
  for (size_t g = 0; g < parts.table->kinds.size(); ++g) {
    for (const GroupKind& kind : parts.table->kinds[g]) {
      if (kind.kind != kMomentum) {
        continue;
      }
      MomentumRecord record;
      if (kind.form == StoredForm::kWholeMatrices) {
        record.stored_form = "whole matrices";
      } else {
        record.stored_form = parts.ranks[0].stage == 3 ? "sub-group partition"
                                                       : "flat partition";
      }
      const auto& scale = parts.ranks[0].loss_scale;
      if (parts.model->config.fp16 && !parts.offloaded() && scale) {
        record.unit = MomentumUnit::kLossScaled;
        record.scale_in_file = scale->scale;
        record.unit_scale = ProvenScale(*scale);
      }
      return record;
    }
  }
  return std::nullopt;
}

void AddFinding(CheckpointInfo& info, Finding::Severity severity,
                std::string code, std::string message) {
  info.findings.push_back({.severity = severity,
                           .code = std::move(code),
                           .message = std::move(message)});
}

void AddFindings(const Parts& parts, CheckpointInfo& info) {
  info.findings = FindGaps(parts, info);
  if (parts.ranks[0].elastic) {
    AddFinding(info, Finding::Severity::kNote, "elastic",
               "an elastic checkpoint: hyper-parameters are not in it, and "
               "DeepSpeed cuts the momentum by the padding of the partition");
  }
  if (!parts.directory.extra_files.empty()) {
    AddFinding(info, Finding::Severity::kNote, "extra_files",
               StrCat("files that belong to no rank: ",
                      JoinNames(parts.directory.extra_files, 5)));
  }
}

void AddCounters(const Parts& parts, CheckpointInfo& info) {
  info.counters = parts.model->counters;
  if (const auto& scale = parts.ranks[0].loss_scale) {
    info.counters.emplace_back("loss_scale", scale->scale);
    if (scale->dynamic) {
      for (const auto& [name, value] : scale->counters) {
        info.counters.emplace_back("loss_scaler." + name, value);
      }
    }
  }
}

}  // namespace

CheckpointInfo DescribeCheckpoint(const Parts& parts) {
  const RankStates& rank0 = parts.ranks[0];
  CheckpointInfo info;
  info.format = "deepspeed";
  info.producer = "DeepSpeed " + rank0.version;
  info.path = parts.directory.path;
  info.tag = std::filesystem::path(info.path).filename().string();
  info.step = parts.model->global_steps;
  info.stage = rank0.stage;
  info.optimizer_class = WriterName(rank0.writer);
  info.num_ranks = parts.directory.num_ranks();
  info.precision = PrecisionOf(parts);
  info.offload = parts.model->config.offload;
  info.order = OrderOfMuonGroups(parts).Run();
  info.groups = parts.layout->groups;
  info.momentum = MomentumOf(parts);
  for (const NamedTensor& named : parts.model->module) {
    info.module_order.push_back(named.name);
  }
  info.aliases = parts.model->tied;
  info.carried = parts.model->carried;
  info.total_bytes = parts.directory.size_bytes;
  info.num_files = parts.directory.num_files;
  AddCounters(parts, info);
  AddFindings(parts, info);
  return info;
}

}  // namespace muonstore::deepspeed
