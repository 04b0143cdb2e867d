// The command line of ckpt-convert.
//
// What: options as they were given; what a combination of them means is decided
//   where it is used.
// Failures: CLI11's own errors for single values; Check() throws
//   Error(kInvalidArgument) for options that do not go together.

#ifndef MUONSTORE_TOOLS_CKPT_CONVERT_OPTIONS_H_
#define MUONSTORE_TOOLS_CKPT_CONVERT_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "converters/make_sink.h"
#include "muonstore/dtype.h"

#include <CLI/CLI.hpp>

namespace muonstore::tools {

struct Options {
  std::string source;
  std::string target;
  std::optional<TargetFormat> to;
  std::string tag;
  std::string out_tag;
  bool overwrite = false;
  bool set_latest = false;
  bool carry_files = false;
  bool dry_run = false;
  bool verify = false;
  bool json = false;

  std::optional<int32_t> stage;
  std::optional<int32_t> world_size;
  std::optional<std::string> offload;
  std::optional<bool> zero_init;
  std::string like;
  std::string ds_config;
  // "auto" or a number; empty: not given.
  std::string momentum_scale;

  std::optional<int32_t> zstd_level;
  std::optional<std::string> state;
  std::optional<DType> dtype;
  std::optional<uint64_t> max_shard_bytes;

  uint64_t memory_limit_bytes = uint64_t{1} << 30;
  int32_t jobs = 0;  // 0: one a processor.
  std::vector<std::string> allowed_losses;

  int32_t num_jobs() const;
  // Of options that only some formats have.
  void CheckFor(TargetFormat format) const;
};

// Registers all options; `options` must outlive `app`.
void AddOptions(CLI::App& app, Options& options);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_CONVERT_OPTIONS_H_
