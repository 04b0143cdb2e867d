#include "formats/deepspeed/run_config.h"

#include <algorithm>

#include "formats/deepspeed/values.h"

namespace muonstore::deepspeed {

RunConfig ParseRunConfig(const std::optional<torchfile::Value>& ds_config) {
  RunConfig config;
  const auto zero = Lookup(ds_config, {"zero_optimization"});
  config.offload =
      LookupString(zero, {"offload_optimizer", "device"})
          .value_or(LookupBool(zero, {"cpu_offload"}).value_or(false) ? "cpu"
                                                                      : "none");
  config.fp16 = LookupBool(ds_config, {"fp16", "enabled"}).value_or(false);
  config.round_robin =
      LookupBool(zero, {"round_robin_gradients"}).value_or(false);
  config.hierarchical_partition =
      LookupInt(zero, {"zero_hpz_partition_size"}).value_or(1) > 1 ||
      LookupInt(zero, {"mics_shard_size"}).value_or(-1) > 0;
  config.optimizer_type =
      LookupString(ds_config, {"optimizer", "type"}).value_or("");
  const auto momentum = Lookup(ds_config, {"optimizer", "params", "momentum"});
  if (momentum && momentum->is(torchfile::ValueType::kFloat)) {
    config.momentum = momentum->AsNumber();
  }
  constexpr int64_t kMaxThreads = 1024;
  config.io_threads =
      std::clamp<int64_t>(LookupInt(ds_config, {"aio", "intra_op_parallelism"})
                              .value_or(config.io_threads),
                          1, kMaxThreads);
  return config;
}

}  // namespace muonstore::deepspeed
