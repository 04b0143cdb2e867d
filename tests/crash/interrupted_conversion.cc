#include "tests/crash/interrupted_conversion.h"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "converters/target_layout.h"
#include "muonstore/convert.h"
#include "muonstore/error.h"
#include "muonstore/open.h"
#include "src/os/output_root.h"
#include "tests/testutil/fixtures.h"

namespace muonstore::testutil {
namespace {

constexpr const char* kRoot = "/sim/root";
constexpr const char* kTag = "/sim/root/tag";

// Names, values and counters, of whichever format.
std::string Dump(const Checkpoint& checkpoint) {
  std::string text = "step " + std::to_string(*checkpoint.info().step) + "\n";
  for (size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    const CheckpointTensor& tensor = checkpoint.tensors()[i];
    const int64_t count = tensor.shape.num_elements();
    std::string bytes(static_cast<size_t>(count * SizeBytes(tensor.dtype)),
                      '\0');
    ReadTensor(checkpoint, i, {0, count},
               std::as_writable_bytes(std::span(bytes)));
    text += tensor.key.ToString() + " " +
            std::to_string(std::hash<std::string>()(bytes)) + "\n";
  }
  return text;
}

}  // namespace

InterruptedConversion::InterruptedConversion(TargetFormat format,
                                             bool has_exchange)
    : format_(format),
      start_(std::make_shared<SimulatedFileSystem>(PosixFileSystem(), "/sim")) {
  if (!has_exchange) start_->HaveNoExchange();
  ConvertStep(start_, "step5");
  old_ = StateOf(start_);
  const auto after = Start();
  Convert(after);
  new_ = StateOf(after);
}

void InterruptedConversion::ConvertStep(
    const std::shared_ptr<SimulatedFileSystem>& fs,
    const std::string& step) const {
  const auto source = OpenCheckpoint(
      fs,
      (FindDeepSpeedCase("s2-ws2-bf16-none-twotags").folder / "ckpt").string(),
      {.tag = step});
  const TargetLayout layout = ChooseLayout(*source, {}).layout;
  os::OutputRoot root(fs, kRoot);
  const auto sink =
      MakeSink(*source, layout, root,
               {.format = format_, .tag = "tag", .overwrite = true});
  muonstore::Convert(*source, *sink, PlanConversion(*source, *sink),
                     {.fs = fs});
  os::StageLatest(root, "tag")->Commit();
}

void InterruptedConversion::Convert(
    const std::shared_ptr<SimulatedFileSystem>& fs) const {
  ConvertStep(fs, "step8");
}

std::string InterruptedConversion::StateOf(
    const std::shared_ptr<SimulatedFileSystem>& fs) const {
  if (!fs->Stat(kTag)) return "none";
  if (format_ != TargetFormat::kSafetensors) {
    const VerifyReport report = VerifyCheckpoint(fs, kTag);
    for (const Finding& finding : report.findings) {
      if (finding.severity == Finding::Severity::kFault) {
        throw Error(ErrorCode::kDataLoss, finding.message, finding.place);
      }
    }
    return Dump(*OpenCheckpoint(fs, kTag));
  }
  std::string text;
  for (const auto& [name, data] : fs->Everything()) {
    if (name.starts_with("root/tag/")) text += name + "\n" + data + "\n";
  }
  return text;
}

std::string InterruptedConversion::Leftovers(
    const SimulatedFileSystem& fs) const {
  std::string names;
  for (const auto& [name, data] : fs.Everything()) {
    const bool is_wanted = name == "root/" || name == "root/latest" ||
                           name == "root/tag.fingerprint.json" ||
                           name.starts_with("root/tag/");
    if (!is_wanted) names += name + " ";
  }
  return names;
}

}  // namespace muonstore::testutil
