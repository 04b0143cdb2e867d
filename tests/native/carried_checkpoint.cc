#include "tests/native/carried_checkpoint.h"

#include "tests/native/random_checkpoint.h"
#include "tests/testutil/fixtures.h"

namespace muonstore::native {

std::unique_ptr<CarriedCheckpoint> SmallCarriedCheckpoint(float scale) {
  const auto file = torchfile::TorchFile::Open(
      PosixFileSystem(),
      (testutil::FindDeepSpeedCase("s2-ws2-bf16-none-base").folder / "ckpt" /
       "step5" / "mp_rank_00_model_states.pt")
          .string());
  const torchfile::TreeRef tree{.file = file,
                                .node = file->root().id(),
                                .is_state = [file](torchfile::NodeId node) {
                                  return torchfile::Value(file->tree(), node)
                                      .is(torchfile::ValueType::kTensor);
                                }};
  return std::make_unique<CarriedCheckpoint>(
      SmallCheckpoint(scale),
      std::vector<torchfile::CarriedRank>{{.model_states = tree},
                                          {.optim_states = tree}});
}

}  // namespace muonstore::native
