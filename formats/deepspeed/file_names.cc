#include "formats/deepspeed/file_names.h"

#include <charconv>

#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

// Cuts patterns off the front of a name.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool Literal(std::string_view literal) {
    if (!text_.starts_with(literal)) {
      return false;
    }
    text_.remove_prefix(literal.size());
    return true;
  }

  bool Number(int32_t& value) {
    const char* begin = text_.data();
    // from_chars would take a sign.
    if (text_.empty() || *begin < '0' || *begin > '9') {
      return false;
    }
    const auto result = std::from_chars(begin, begin + text_.size(), value);
    if (result.ec != std::errc()) {
      return false;
    }
    text_.remove_prefix(static_cast<size_t>(result.ptr - begin));
    return true;
  }

  bool AtEnd() const { return text_.empty(); }

 private:
  std::string_view text_;
};

}  // namespace

std::optional<OptimFileName> ParseOptimFileName(std::string_view name) {
  OptimFileName parsed;
  Scanner scanner(name);
  parsed.bf16 = scanner.Literal("bf16_");
  if (scanner.Literal("zero_pp_rank_") && scanner.Number(parsed.rank) &&
      scanner.Literal("_mp_rank_") && scanner.Number(parsed.mp_rank) &&
      scanner.Literal("_optim_states.pt") && scanner.AtEnd()) {
    return parsed;
  }
  return std::nullopt;
}

std::optional<ModelFileName> ParseModelFileName(std::string_view name) {
  ModelFileName parsed;
  Scanner scanner(name);
  if (scanner.Literal("zero_pp_rank_")) {
    int32_t rank = 0;
    if (!scanner.Number(rank) || !scanner.Literal("_")) {
      return std::nullopt;
    }
    parsed.rank = rank;
  }
  if (scanner.Literal("mp_rank_") && scanner.Number(parsed.mp_rank) &&
      scanner.Literal("_model_states.pt") && scanner.AtEnd()) {
    return parsed;
  }
  return std::nullopt;
}

std::optional<std::string> UnsupportedFeatureOf(std::string_view name) {
  if (name.starts_with("expp_rank_") ||
      (name.starts_with("layer_") &&
       name.find("_expert_") != std::string_view::npos)) {
    return "expert parallelism";
  }
  if (name.starts_with("layer_") && name.ends_with(".pt")) {
    return "pipeline parallelism";
  }
  const auto optim = ParseOptimFileName(name);
  const auto model = ParseModelFileName(name);
  if ((optim && optim->mp_rank > 0) || (model && model->mp_rank > 0)) {
    return "tensor parallelism (mp_rank > 0)";
  }
  return std::nullopt;
}

std::string MakeOptimFileName(int32_t rank, bool bf16) {
  return StrCat(bf16 ? "bf16_" : "", "zero_pp_rank_", rank,
                "_mp_rank_00_optim_states.pt");
}

std::string MakeModelFileName(std::optional<int32_t> rank) {
  return rank ? StrCat("zero_pp_rank_", *rank, "_mp_rank_00_model_states.pt")
              : "mp_rank_00_model_states.pt";
}

}  // namespace muonstore::deepspeed
