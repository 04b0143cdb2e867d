#include "tools/ckpt_inspect/select.h"

#include <algorithm>
#include <set>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "tools/common/glob.h"

namespace muonstore::tools {
namespace {

constexpr size_t kMaxHints = 5;

// Kept names behind tied names that match the pattern.
std::vector<std::string> KeptNames(const Checkpoint& checkpoint,
                                   const std::string& pattern) {
  std::vector<std::string> names;
  for (const auto& [dropped, kept] : checkpoint.info().aliases) {
    if (GlobMatches(pattern, dropped)) names.push_back(kept);
  }
  return names;
}

bool Matches(const CheckpointTensor& tensor, const Selection& selection,
             const std::vector<std::string>& kept_names) {
  if (!selection.state.empty() &&
      tensor.key.kind != CanonicalStateKind(selection.state)) {
    return false;
  }
  const std::string& name = tensor.key.parameter;
  return selection.param.empty() || GlobMatches(selection.param, name) ||
         std::find(kept_names.begin(), kept_names.end(), name) !=
             kept_names.end();
}

std::string Quoted(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  quoted.reserve(names.size());
  for (const std::string& name : names) {
    quoted.push_back(StrCat("'", name, "'"));
  }
  return JoinNames(quoted, quoted.size());
}

// Says why nothing matched and what there is instead.
[[noreturn]] void ThrowNothing(
    const std::vector<const Checkpoint*>& checkpoints,
    const Selection& selection) {
  std::set<std::string> kinds;
  std::set<std::string> names;  // Of the wanted kind.
  std::set<std::string> all_names;
  for (const Checkpoint* checkpoint : checkpoints) {
    for (const CheckpointTensor& tensor : checkpoint->tensors()) {
      kinds.insert(tensor.key.kind);
      all_names.insert(tensor.key.parameter);
      if (Matches(tensor, {.param = {}, .state = selection.state}, {})) {
        names.insert(tensor.key.parameter);
      }
    }
  }
  const std::vector<std::string> kind_list(kinds.begin(), kinds.end());
  if (kind_list.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the checkpoint has no tensors");
  }
  if (names.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("no tensor of state '", selection.state, "'; there is ",
                       Quoted(kind_list)));
  }
  std::string message = StrCat("no parameter matches '", selection.param, "'");
  const bool other_state = std::any_of(
      all_names.begin(), all_names.end(),
      [&](const auto& name) { return GlobMatches(selection.param, name); });
  if (other_state) message += StrCat(" in state '", selection.state, "'");
  const std::vector<std::string> name_list(names.begin(), names.end());
  throw Error(
      ErrorCode::kInvalidArgument,
      StrCat(message, "; did you mean ",
             Quoted(NearNames(selection.param, name_list, kMaxHints)), "?"));
}

}  // namespace

std::vector<size_t> SelectTensors(const Checkpoint& checkpoint,
                                  const Selection& selection) {
  const std::vector<std::string> kept_names =
      KeptNames(checkpoint, selection.param);
  std::vector<size_t> indices;
  for (size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    if (Matches(checkpoint.tensors()[i], selection, kept_names)) {
      indices.push_back(i);
    }
  }
  if (indices.empty() && !selection.empty()) {
    ThrowNothing({&checkpoint}, selection);
  }
  return indices;
}

size_t SelectTensor(const Checkpoint& checkpoint, const Selection& selection) {
  const auto index = FindTensor(
      checkpoint, {selection.param, CanonicalStateKind(selection.state)});
  if (index) return *index;
  const std::vector<size_t> matching = SelectTensors(checkpoint, selection);
  if (matching.size() == 1) return matching[0];
  std::vector<std::string> names;
  for (const size_t i : matching) {
    names.push_back(StrCat("'", checkpoint.tensors()[i].key.parameter, "'"));
  }
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("'", selection.param, "' matches ", names.size(),
                     " parameters, and one at a time is dumped: ",
                     JoinNames(names, kMaxHints)));
}

PairSelector::PairSelector(const Checkpoint& a, const Checkpoint& b,
                           const Selection& selection)
    : selection_(selection), kept_names_(KeptNames(a, selection.param)) {
  for (std::string& name : KeptNames(b, selection.param)) {
    kept_names_.push_back(std::move(name));
  }
  const auto any = [this](const Checkpoint& checkpoint) {
    const auto tensors = checkpoint.tensors();
    return std::any_of(tensors.begin(), tensors.end(), *this);
  };
  if (!any(a) && !any(b)) ThrowNothing({&a, &b}, selection);
}

bool PairSelector::operator()(const CheckpointTensor& tensor) const {
  return Matches(tensor, selection_, kept_names_);
}

}  // namespace muonstore::tools
