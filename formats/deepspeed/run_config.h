// What the run's own config (`ds_config`) says, as far as files depend on it.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_RUN_CONFIG_H_
#define MUONSTORE_FORMATS_DEEPSPEED_RUN_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "formats/torchfile/value.h"

namespace muonstore::deepspeed {

// The config is a hint: what the files themselves show always wins.
struct RunConfig {
  std::string offload = "none";  // Device of the optimizer state.
  bool fp16 = false;
  bool round_robin = false;
  bool hierarchical_partition = false;  // hpZ or MiCS.
  std::string optimizer_type;           // "Muon", "AdamW", ...
  std::optional<double> momentum;       // Of a Muon run.
  int64_t io_threads = 1;               // Of NVMe offload, for each request.
};

RunConfig ParseRunConfig(const std::optional<torchfile::Value>& ds_config);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_RUN_CONFIG_H_
