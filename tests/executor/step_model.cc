#include "tests/executor/step_model.h"

#include <functional>
#include <random>
#include <span>
#include <utility>

#include "tests/store/store_ranks.h"

namespace muonstore::testutil {

std::vector<float> RandomValues(const ParameterSpec& parameter, uint64_t seed) {
  std::mt19937_64 random(std::hash<std::string>{}(parameter.name) ^
                         (seed * 0x9E3779B97F4A7C15U));
  std::vector<float> values(
      static_cast<size_t>(parameter.shape.num_elements()));
  for (float& value : values) {
    // The sum of three uniform values, about 0.
    float sum = 0;
    for (int i = 0; i < 3; ++i) {
      sum += static_cast<float>(random() >> 40) / 16777216.0F - 0.5F;
    }
    value = sum;
  }
  return values;
}

std::unique_ptr<StateStore> MakeStepStore(
    std::shared_ptr<Communicator> communicator, const StepSetup& setup) {
  auto model = setup.model.empty() ? SmallModel() : setup.model;
  auto partitioning =
      Partitioning::Build(model, {.stage = setup.stage,
                                  .num_ranks = communicator->size(),
                                  .sub_group_size = 60});
  auto store = std::make_unique<StateStore>(
      model, std::move(partitioning),
      StoreOptions{.communicator = std::move(communicator),
                   .tiers = setup.tiers,
                   .max_snapshot_bytes = setup.max_snapshot_bytes});
  for (const ParameterSpec& parameter : model) {
    if (parameter.optimizer == Optimizer::kNone) continue;
    const std::vector<float> values = RandomValues(parameter, 0);
    store->Set(parameter.name, StateKind(kMaster), values);
    store->Set(parameter.name, StateKind(kWeight), values);
  }
  return store;
}

ExecutorOptions StepOptionsOf(const StateStore& store) {
  ExecutorOptions options;
  for (size_t i = 0; i < store.record().group_steps.size(); ++i) {
    options.groups.push_back(
        {.lr = i == 0 ? 0.02 : 0.003, .weight_decay = i == 0 ? 0.1 : 0.01});
  }
  return options;
}

void AccumulateAll(StateStore& store, OffloadExecutor& executor, uint64_t seed,
                   float factor) {
  for (const ParameterSpec& parameter : store.parameters()) {
    if (parameter.optimizer == Optimizer::kNone) continue;
    std::vector<float> values = RandomValues(parameter, seed);
    for (float& value : values) value *= factor;
    executor.Accumulate(parameter.name,
                        {.data = std::as_bytes(std::span(values)),
                         .parameter_shape = parameter.shape});
  }
}

StateBytes AllState(StateStore& store) {
  StateBytes state;
  for (size_t i = 0; i < store.parameters().size(); ++i) {
    for (const StateKind& kind : store.kinds(static_cast<int32_t>(i))) {
      if (kind == kGradient) continue;
      GatheredTensor tensor = store.Gather(store.parameters()[i].name, kind);
      state.emplace(tensor.key.ToString(), std::move(tensor.data));
    }
  }
  return state;
}

}  // namespace muonstore::testutil
