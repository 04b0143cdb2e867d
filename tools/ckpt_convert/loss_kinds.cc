#include "tools/ckpt_convert/loss_kinds.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "muonstore/convert.h"
#include "src/base/str.h"

namespace muonstore::tools {
namespace {

struct LossKind {
  std::string_view name;
  std::string_view meaning;
};

constexpr LossKind kKinds[] = {
    {kMissingLoss, "elements that the source lacks become zeros"},
    {kOverflowLoss, "values beyond the range of --dtype become infinite"},
    {"momentum", "momentum without a place in the target"},
    {"optimizer-state", "other optimizer state without a place"},
    {"model", "weights or buffers without a place"},
    {"carried", "values of the source that DeepSpeed does not know"},
    {kWeightsLoss, "weights that are not round(master), which replaces them"},
    {kSpecialFilesLoss, "(--carry-files) pipes, sockets and devices"},
    {"momentum_missing", "the source lacks momentum that it should hold"},
    {"state_missing", "... moments of Adam"},
    {"step_missing", "... the step of Adam"},
    {"counter_missing", "... its step counter"},
    {"weight_missing", "... a weight"},
    {"buffer_missing", "... a buffer"},
    {"alias_contradicts", "the source ties names that cannot be tied"},
    {"replicas_differ", "(--verify) its copies differ; the owner's is taken"},
};

}  // namespace

bool IsLossKind(std::string_view kind) {
  return std::any_of(std::begin(kKinds), std::end(kKinds),
                     [&](const LossKind& known) { return known.name == kind; });
}

std::string LossKindNames() {
  std::vector<std::string> names;
  for (const LossKind& kind : kKinds) names.emplace_back(kind.name);
  return JoinNames(names, names.size());
}

std::string LossKindHelp() {
  std::string text = "Kinds of loss:\n";
  for (const LossKind& kind : kKinds) {
    text += StrCat("  ", kind.name, std::string(19 - kind.name.size(), ' '),
                   kind.meaning, "\n");
  }
  return text;
}

}  // namespace muonstore::tools
