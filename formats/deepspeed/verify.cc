#include "formats/deepspeed/verify.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "formats/deepspeed/agreement.h"
#include "formats/deepspeed/checkpoint.h"
#include "formats/deepspeed/parts.h"
#include "formats/deepspeed/swap_files.h"
#include "formats/deepspeed/verify_values.h"
#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

class Verification {
 public:
  Verification(std::shared_ptr<FileSystem> fs, std::string path,
               const VerifyOptions& options)
      : fs_(std::move(fs)), path_(std::move(path)), options_(options) {}

  VerifyReport Run() {
    Parts parts = LoadParts(fs_, path_, /*rank_zero_only=*/false);
    report_.path = path_;
    report_.tag = std::filesystem::path(path_).filename().string();
    report_.num_files = parts.directory.num_files;
    report_.size_bytes = parts.directory.size_bytes;
    for (const Error& problem : parts.problems) {
      Fault(problem, "structure");
    }
    if (!parts.directory.extra_files.empty()) {
      Note("extra_files",
           StrCat("files that belong to no rank: ",
                  JoinNames(parts.directory.extra_files, options_.max_names)));
    }
    if (parts.layout) {
      Guard("structure", [&] { Append(CheckSwapFiles(parts)); });
    }
    if (!options_.quick) {
      CheckBytes(parts);
    }
    if (parts.problems.empty()) {
      CheckValues(std::move(parts));
    }
    return std::move(report_);
  }

 private:
  // The tensors of each record.
  using Names = std::map<std::string, std::vector<std::string>>;

  // The same fault may show on two ways: it is listed once.
  void Fault(const Error& error, std::string code) {
    if (seen_.insert(error.what()).second) {
      report_.findings.push_back(Finding::FromError(error, std::move(code)));
    }
  }

  void Note(std::string code, std::string message) {
    report_.findings.push_back({.severity = Finding::Severity::kNote,
                                .code = std::move(code),
                                .message = std::move(message),
                                .place = {.file = path_}});
  }

  void Append(std::vector<Finding> findings) {
    report_.findings.insert(report_.findings.end(),
                            std::make_move_iterator(findings.begin()),
                            std::make_move_iterator(findings.end()));
  }

  // Runs `check`; what it throws is a fault.
  template <typename Check>
  void Guard(const char* code, const Check& check) {
    try {
      check();
    } catch (const Error& error) {
      Fault(error, code);
    }
  }

  void CheckBytes(const Parts& parts) {
    for (const RankStates& rank : parts.ranks) {
      CheckFile(*rank.file, NamesOf(parts, rank));
    }
    for (const std::string& path : parts.directory.model_files) {
      if (!path.empty()) {
        Guard("structure", [&] {
          const auto file = torchfile::TorchFile::Open(fs_, path);
          CheckFile(*file, NamesOf(*file));
        });
      }
    }
  }

  void CheckFile(const torchfile::TorchFile& file, const Names& names) {
    const uint64_t before = done_bytes_;
    const auto faults = file.Verify([&](uint64_t bytes) {
      done_bytes_ = before + bytes;
      if (options_.progress) {
        options_.progress(done_bytes_, report_.size_bytes);
      }
    });
    done_bytes_ = before + file.file_size_bytes();
    if (options_.progress) {
      options_.progress(done_bytes_, report_.size_bytes);
    }
    for (const Error& fault : faults) {
      // The reader knows the record, the checkpoint what is in it.
      ErrorPlace place = fault.place();
      const auto name = names.find(RecordAt(file, place.offset_bytes));
      if (name != names.end()) {
        place.tensor = JoinNames(name->second, options_.max_names);
      }
      Fault(Error(fault.code(), fault.message(), place), "checksum");
    }
  }

  static std::string RecordAt(const torchfile::TorchFile& file,
                              std::optional<uint64_t> offset_bytes) {
    const auto& records = file.records();
    const auto it = std::find_if(records.begin(), records.end(),
                                 [&](const torchfile::RecordInfo& record) {
                                   return record.offset_bytes == offset_bytes;
                                 });
    return it == records.end() ? "" : it->name;
  }

  static std::string RecordOf(const torchfile::TorchFile& file,
                              uint32_t tensor) {
    const auto& tree = file.tree();
    return "data/" + tree.storages[tree.tensors[tensor].storage].key;
  }

  // What each record of a rank's file holds.
  static Names NamesOf(const Parts& parts, const RankStates& rank) {
    Names names;
    for (size_t g = 0; g < rank.flat.size(); ++g) {
      const FlatState& flat = rank.flat[g];
      const auto add = [&](uint32_t tensor, std::string_view kind) {
        std::vector<std::string>& list = names[RecordOf(*rank.file, tensor)];
        for (const std::string& member : MembersOf(parts, rank.rank, g)) {
          list.push_back(StrCat(member, "/", kind));
        }
      };
      add(flat.master->tensor, kMaster);
      for (const auto& [kind, buffer] : flat.buffers) add(buffer.tensor, kind);
    }
    return names;
  }

  static std::vector<std::string> MembersOf(const Parts& parts, int32_t rank,
                                            size_t group) {
    if (!parts.layout) {
      return {StrCat("flat group ", group)};
    }
    std::vector<std::string> members;
    const auto& partitioning = parts.layout->partitioning;
    const auto& parameters = partitioning.groups()[group].parameters;
    for (const int32_t position :
         partitioning.parameters_on_rank(rank, static_cast<int32_t>(group))) {
      const auto parameter =
          static_cast<size_t>(parameters[static_cast<size_t>(position)]);
      members.push_back(parts.layout->specs[parameter].name);
    }
    return members;
  }

  // What each record of a model file holds.
  static Names NamesOf(const torchfile::TorchFile& file) {
    Names names;
    const auto module = Lookup(file.root(), {"module"});
    for (size_t i = 0; module && i < module->size(); ++i) {
      const auto [name, value] = module->entry(i);
      if (value.is(torchfile::ValueType::kTensor)) {
        names[RecordOf(file, static_cast<uint32_t>(value.node().value))]
            .push_back(StrCat(name.AsString(), "/", kWeight));
      }
    }
    return names;
  }

  void CheckValues(Parts parts) {
    Guard("structure", [&] {
      const DeepSpeedCheckpoint checkpoint(std::move(parts));
      for (const Error& loss : checkpoint.Losses()) {
        Fault(loss, "missing_elements");
      }
      CheckCoverageOfAll(checkpoint, report_.findings);
      for (const Finding& finding : checkpoint.info().findings) {
        if (finding.severity != Finding::Severity::kNote) {
          report_.findings.push_back(finding);
        }
      }
      if (!options_.quick) {
        CompareReplicas(checkpoint, report_.findings);
        CompareWeights(checkpoint, report_.findings);
      }
    });
  }

  std::shared_ptr<FileSystem> fs_;
  std::string path_;
  const VerifyOptions& options_;
  VerifyReport report_;
  std::set<std::string> seen_;
  uint64_t done_bytes_ = 0;
};

}  // namespace

VerifyReport VerifyTag(std::shared_ptr<FileSystem> fs, const std::string& path,
                       const VerifyOptions& options) {
  return Verification(std::move(fs), path, options).Run();
}

}  // namespace muonstore::deepspeed
