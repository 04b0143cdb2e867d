// ckpt-convert as a user runs it.
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/file_system.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"
#include "tests/tools/cli.h"
#include "tests/tools/convert_cli_fixture.h"
#include "tests/torchfile/writing.h"

namespace muonstore::testutil {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;

namespace stdfs = std::filesystem;

TEST_F(ConvertCliTest, HelpTeaches) {
  const ProcessResult result = RunConvert({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("Examples:"), HasSubstr("Exit codes:"),
                    HasSubstr("--zero-init"), HasSubstr("--allow-loss")));
  EXPECT_EQ(RunConvert({"--version"}).out,
            "ckpt-convert " MUONSTORE_VERSION "\n");
}

TEST_F(ConvertCliTest, ThereAndBackIsTheSameState) {
  EXPECT_EQ(RunConvert({source_, Out("a"), "--to", "native", "--stage", "3",
                        "--world-size", "3", "--zero-init", "yes", "--verify"})
                .exit_code,
            0);
  EXPECT_EQ(RunConvert({Out("a"), Out("b"), "--stage", "1", "--world-size", "5",
                        "--offload", "cpu", "--verify"})
                .exit_code,
            0);
  EXPECT_EQ(Inspect({"diff", source_, Out("b")}).exit_code, 0);
}

// A stage-1 run says nothing of its frozen parameters; what is cut for stage 3
// in between must not take that for "left out".
TEST_F(ConvertCliTest, FrozenParametersComeThroughANativeTagOfStage3) {
  const std::string source = CheckpointRoot("s1-ws2-bf16-none-frozen");
  ConvertJson({source, Out("n"), "--to", "native", "--stage", "3",
               "--zero-init", "no"});
  ConvertJson({Out("n"), Out(), "--to", "deepspeed", "--verify"});
  EXPECT_EQ(Inspect({"diff", source, Out()}).exit_code, 0);
  EXPECT_EQ(Inspect({"verify", Out()}).exit_code, 0);
}

// Old versions keep no momentum with CPU offload: not a fault of the target,
// which says what DeepSpeed will make of it.
TEST_F(ConvertCliTest, MomentumThatTheSourceLacksIsNoFaultOfTheTarget) {
  for (const std::string version : {"v0176", "v0189", "v0196"}) {
    SCOPED_TRACE(version);
    const std::string source = CheckpointRoot("s2-ws2-bf16-cpu-" + version);
    const auto json =
        ConvertJson({source, Out(version), "--offload", "none", "--verify"});
    EXPECT_THAT(json["notes"].dump(), HasSubstr("resume with zero momentum"));
    const ProcessResult found = Inspect({"verify", Out(version)});
    EXPECT_EQ(found.exit_code, 0) << found.out;
    EXPECT_THAT(found.out,
                AllOf(HasSubstr("warning momentum_missing"),
                      HasSubstr("DeepSpeed resumes with zero momentum")));
    // Over native, and back to where it came from.
    ConvertJson({Out(version), Out(version + "n"), "--to", "native"});
    ConvertJson({Out(version + "n"), Out(version + "3"), "--to", "deepspeed",
                 "--stage", "3", "--zero-init", "no", "--verify"});
    EXPECT_EQ(Inspect({"verify", Out(version + "3")}).exit_code, 0);
    ConvertJson({Out(version + "3"), Out(version + "b"), "--stage", "2",
                 "--offload", "cpu", "--verify"});
    EXPECT_EQ(Inspect({"diff", source, Out(version + "b")}).exit_code, 0);
    EXPECT_THAT(Inspect({"verify", Out(version + "b")}).out,
                HasSubstr("never stored it"));
  }
}

TEST_F(ConvertCliTest, GradientsInFp32MeanBf16OptimizerAtStage1) {
  const std::string source = CheckpointRoot("s1-ws2-bf16-none-gacc32");
  ConvertJson({source, Out("a"), "--stage", "2"});
  ConvertJson({Out("a"), Out(), "--stage", "1", "--verify"});
  EXPECT_EQ(Inspect({"diff", source, Out()}).exit_code, 0);
  EXPECT_THAT(Inspect({"summary", Out()}).out, HasSubstr("BF16_Optimizer"));
}

TEST_F(ConvertCliTest, ExportsWeights) {
  const auto json =
      ConvertJson({source_, Out(), "--to", "safetensors", "--verify"});
  EXPECT_EQ(json["target"]["format"], "safetensors");
  EXPECT_EQ(json["verified"], true);
  EXPECT_EQ(json["latest_written"], false);
  EXPECT_THAT(Snapshot(Out()), Contains(Key("step5/model.safetensors")));
}

TEST_F(ConvertCliTest, MistakesAreExitCode2) {
  const std::vector<std::vector<std::string>> lines = {
      {},
      {source_},
      {source_, Out(), "surplus"},
      {source_, Out(), "--to", "zip"},
      {source_, Out(), "--to", "native", "--stage", "4"},
      {source_, Out(), "--to", "native", "--world-size", "0"},
      {source_, Out(), "--to", "native", "--zero-init", "maybe"},
      {source_, Out(), "--to", "native", "--offload", "disk"},
      {source_, Out(), "--to", "native", "--memory-limit", "lots"},
      {source_, Out(), "--to", "native", "--memory-limit", "1KiB"},
      {source_, Out(), "--to", "native", "--state", "master"},
      {source_, Out(), "--to", "native", "--momentum-scale", "big"},
      {source_, Out(), "--to", "native", "--momentum-scale", "1e-310"},
      {source_, Out(), "--to", "native", "--out-tag", "a/b"},
      {source_, Out(), "--to", "native", "--out-tag", ".hidden"},
      {source_, Out(), "--to", "native", "--tag", "step6"},
      {source_, Out(), "--to", "native", "--stage", "2", "--zero-init", "yes"},
      {source_, Out(), "--to", "safetensors", "--stage", "2"},
      {source_, Out(), "--to", "safetensors", "--zstd", "3"},
      {source_, Out(), "--to", "safetensors", "--dtype", "i8"},
      {source_, Out(), "--to", "safetensors", "--state", "velocity"},
      {source_, Out(), "--to", "safetensors", "--set-latest"},
      {source_, Out(), "--to", "safetensors", "--max-shard-size", "0"},
      {source_, Out(), "--to", "native", "--momentum-scale", "1024"},
      {source_, Out(), "--offload", "cpu", "--momentum-scale", "1024"},
      {source_, Out(), "--offload", "cpu", "--momentum-scale", "auto"},
      {source_, Out(), "--to", "native", "--allow-loss", "bogus"},
      {source_, Out(), "--to", "native", "--allow-loss", "missing,checksum"},
  };
  for (const auto& line : lines) ExpectRefused(line, 2, "error:");
}

TEST_F(ConvertCliTest, TheKindsOfLossAreListed) {
  ExpectRefused({source_, Out(), "--to", "native", "--allow-loss", "bogus"}, 2,
                "the kinds are missing, overflow, momentum");
  EXPECT_THAT(RunConvert({"--help"}).out,
              AllOf(HasSubstr("Kinds of loss:"), HasSubstr("momentum_missing"),
                    HasSubstr("overflow")));
}

TEST_F(ConvertCliTest, AScaleThatChangesNothingIsSaid) {
  const auto json =
      ConvertJson({CheckpointRoot("s2-ws2-fp16-none-scaledoubled"), Out(),
                   "--world-size", "3", "--momentum-scale", "1024"});
  EXPECT_THAT(json["notes"].dump(), HasSubstr("changes nothing"));
}

// True units become units of the scale that training goes on with.
TEST_F(ConvertCliTest, Fp16MomentumLeavesOffload) {
  const std::string offloaded = CheckpointRoot("s2-ws2-fp16-cpu-scalemid");
  ExpectRefused({offloaded, Out(), "--offload", "none"}, 4,
                "--momentum-scale auto takes the scale that the source's loss "
                "scaler goes on with");
  const auto json = ConvertJson({offloaded, Out("auto"), "--offload", "none",
                                 "--momentum-scale", "auto"});
  EXPECT_THAT(json["notes"].dump(),
              HasSubstr("training goes on with the loss scale 512"));
  ConvertJson({offloaded, Out("given"), "--offload", "none", "--momentum-scale",
               "512"});
  EXPECT_EQ(
      RunProcess({MUONSTORE_CKPT_INSPECT, "diff", Out("auto"), Out("given")})
          .exit_code,
      0);
  // And back, by the same scale: the bytes of a float times a power of two.
  ConvertJson({Out("auto"), Out("back"), "--offload", "cpu", "--momentum-scale",
               "512"});
  EXPECT_EQ(RunProcess({MUONSTORE_CKPT_INSPECT, "diff", offloaded, Out("back"),
                        "--state", "momentum"})
                .exit_code,
            0);
}

TEST_F(ConvertCliTest, StageThreeNeedsAnAnswer) {
  ExpectRefused({source_, Out(), "--to", "native", "--stage", "3"}, 2,
                "--zero-init yes");
}

TEST_F(ConvertCliTest, NvmeIsRefusedByName) {
  ExpectRefused({source_, Out(), "--offload", "nvme"}, 2,
                "resume with offload_optimizer.device \"cpu\"");
  ExpectRefused(
      {CheckpointRoot("s3-ws2-bf16-nvme-base"), Out(), "--to", "deepspeed"}, 2,
      "Write --offload cpu");
  // What asks for it is named, not the source.
  const std::string nvme = CheckpointRoot("s3-ws2-bf16-nvme-base");
  ExpectRefused({source_, Out(), "--like", nvme}, 2, nvme + "/step5: offload");
  WriteBytes(scratch_ / "nvme.json",
             R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 2,
                 "offload_optimizer": {"device": "nvme"}}})");
  ExpectRefused(
      {source_, Out(), "--ds-config", (scratch_ / "nvme.json").string()}, 2,
      "nvme.json: offload");
  EXPECT_EQ(ConvertJson({source_, Out(), "--like", nvme, "--offload",
                         "cpu"})["target"]["offload"],
            "cpu");
}

TEST_F(ConvertCliTest, ShardsAndTheirIndexAreCounted) {
  const std::vector<std::string> line = {
      source_, Out(), "--to", "safetensors", "--max-shard-size", "10KiB"};
  const ProcessResult result = RunConvert(line);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto files = Snapshot(scratch_ / "out/step5");
  EXPECT_THAT(result.out, HasSubstr(std::to_string(files.size() - 1) +
                                    " shards and an index"));
  EXPECT_TRUE(files.contains("model.safetensors.index.json"));
}

TEST_F(ConvertCliTest, ADryRunWritesNothing) {
  const auto json = ConvertJson({source_, Out("deep/er"), "--to", "native",
                                 "--world-size", "3", "--dry-run"});
  EXPECT_EQ(json["dry_run"], true);
  EXPECT_EQ(json["target"]["file_bytes"].size(), 3U);
  EXPECT_THAT(Snapshot(scratch_.path()), IsEmpty());
}

TEST_F(ConvertCliTest, LossesNeedLeave) {
  const std::string elastic = CheckpointRoot("s1-ws2-bf16-none-elastic");
  const std::vector<std::string> momentum = {
      elastic, Out(), "--to", "safetensors", "--state", "momentum"};
  ExpectRefused(momentum, 4, "--allow-loss missing");
  auto dry = momentum;
  dry.emplace_back("--dry-run");
  const ProcessResult result = RunConvert(dry);
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.out, HasSubstr("needs --allow-loss missing"));
  auto allowed = momentum;
  allowed.insert(allowed.end(), {"--allow-loss", "missing", "--verify"});
  EXPECT_THAT(ConvertJson(allowed)["losses"].dump(),
              HasSubstr("\"kind\":\"missing\""));
}

TEST_F(ConvertCliTest, ValuesBeyondTheDTypeAreALossOfTheirOwn) {
  torchfile::Draft draft;  // Its bytes are floats of every size.
  const auto dict = draft.Dict();
  const auto storage = draft.Storage({.num_elements = 64});
  draft.SetItem(dict, "w",
                draft.Tensor({.storage = storage, .shape = Shape({8, 8})}));
  draft.set_root(dict);
  const std::string file = (scratch_ / "huge.pt").string();
  WriteBytes(file, torchfile::WriteDraft(draft));
  const std::vector<std::string> line = {file,          Out(),     "--to",
                                         "safetensors", "--dtype", "f16"};
  ExpectRefused(line, 4, "--allow-loss overflow");
  auto dry = line;
  dry.emplace_back("--dry-run");
  const ProcessResult result = RunConvert(dry);
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.out, HasSubstr("needs --allow-loss overflow"));
  auto allowed = line;
  allowed.insert(allowed.end(), {"--allow-loss", "overflow", "--verify"});
  EXPECT_THAT(ConvertJson(allowed)["losses"].dump(),
              HasSubstr("\"kind\":\"overflow\""));
}

// Checkpoints whose model file is of another save.
class OtherWeightsTest : public ConvertCliTest {
 protected:
  OtherWeightsTest()
      : root_(
            scratch_.Copy(CheckpointRoot("s2-ws2-bf16-none-twotags"), "root")) {
    stdfs::copy_file(root_ / "step8/mp_rank_00_model_states.pt",
                     root_ / "step5/mp_rank_00_model_states.pt",
                     stdfs::copy_options::overwrite_existing);
    stdfs::remove_all(root_ / "step8");
    WriteBytes(root_ / "latest", "step5");
  }

  stdfs::path root_;
};

// ZeRO-3 stores no weights: those of the model file would go without a word.
TEST_F(OtherWeightsTest, AreALossWhereTheTargetHasNone) {
  std::vector<std::string> line = {root_.string(), Out(), "--stage", "3",
                                   "--zero-init",  "no",  "--verify"};
  ExpectRefused(line, 4, "--allow-loss weights_differ");
  line.pop_back();
  ExpectRefused(line, 4, "--allow-loss weights_differ");
  line.emplace_back("--dry-run");
  EXPECT_THAT(ConvertJson(line, 4)["losses"].dump(),
              HasSubstr("blocks.0.attn.qkv.weight/weight"));
  line.back() = "--allow-loss=weights_differ";
  line.emplace_back("--verify");
  EXPECT_THAT(RunConvert(line).out,
              HasSubstr("equal to the source but for what is lost"));
  EXPECT_EQ(Inspect({"verify", Out()}).exit_code, 0);
}

TEST_F(OtherWeightsTest, StayWhereTheTargetHasWeights) {
  const auto convert = [&](const std::string& from, const std::string& to,
                           const std::string& format) {
    const auto json =
        ConvertJson({from, to, "--to", format, "--stage", "1", "--verify"});
    EXPECT_THAT(json["losses"], IsEmpty());
    EXPECT_EQ(json["verified"], true);
    EXPECT_EQ(Inspect({"diff", root_.string(), to}).exit_code, 0);
    return json;
  };
  const auto json = convert(root_.string(), Out("native"), "native");
  EXPECT_THAT(json["notes"].dump(), HasSubstr("not round(master)"));
  convert(Out("native"), Out("back"), "deepspeed");
  convert(root_.string(), Out("one"), "deepspeed");
}

TEST_F(ConvertCliTest, WhatTheSourceLacksANativeTargetLacks) {
  const std::string elastic = CheckpointRoot("s1-ws2-bf16-none-elastic");
  const auto json = ConvertJson({elastic, Out(), "--to", "native", "--verify"});
  EXPECT_THAT(json["losses"], IsEmpty());
  // Never zeros in silence.
  EXPECT_EQ(Inspect({"diff", elastic, Out()}).exit_code, 4);
}

TEST_F(ConvertCliTest, LikeAndConfigSettleTheOrder) {
  const std::string zinit = CheckpointRoot("s3-ws2-bf16-none-zinit");
  const auto like =
      ConvertJson({source_, Out("a"), "--to", "native", "--like", zinit});
  EXPECT_EQ(like["target"]["stage"], 3);
  WriteBytes(scratch_ / "ds.json",
             R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 1,
                 "offload_optimizer": {"device": "cpu"}}})");
  const auto config =
      ConvertJson({source_, Out("b"), "--to", "native", "--ds-config",
                   (scratch_ / "ds.json").string()});
  EXPECT_EQ(config["target"]["stage"], 1);
  EXPECT_EQ(config["target"]["offload"], "cpu");
  ExpectRefused({source_, Out("c"), "--to", "native", "--stage", "2",
                 "--ds-config", (scratch_ / "ds.json").string()},
                2, "contradicts");
}

TEST_F(ConvertCliTest, ALikeOfAnotherPrecisionIsWhatIsBlamed) {
  const std::string like = CheckpointRoot("s2-ws2-fp16-cpu-scalemid");
  ExpectRefused({source_, Out(), "--like", like}, 4, like);
}

TEST_F(ConvertCliTest, VerifyRefusesADamagedSource) {
  const auto root = scratch_.Copy(source_, "root");
  const auto file =
      root / "step5/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt";
  std::string bytes = ReadBytes(file);
  bytes[bytes.size() / 2] ^= 1;
  WriteBytes(file, bytes);
  ExpectRefused({root.string(), Out(), "--to", "native", "--verify"}, 4,
                "the source is damaged");
}

// A conversion reads most records and blocks in parts.
TEST_F(ConvertCliTest, WithoutVerifyADamagedPayloadIsFoundToo) {
  const auto root = scratch_.Copy(source_, "root");
  ASSERT_EQ(RunConvert({source_, Out("n"), "--to", "native"}).exit_code, 0);
  for (const stdfs::path& folder : {root / "step5", scratch_ / "n/step5"}) {
    for (const auto& entry : stdfs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.find("zero_pp_rank") == name.npos &&
          !name.starts_with("rank-")) {
        continue;
      }
      SCOPED_TRACE(name);
      const std::string whole = ReadBytes(entry.path());
      std::string bytes = whole;
      // A native file's payload begins at its second page.
      bytes[name.starts_with("rank-") ? 4100 : bytes.size() / 2] ^= 1;
      WriteBytes(entry.path(), bytes);
      ExpectRefused({folder.string(), Out(), "--to", "deepspeed", "--stage",
                     "3", "--zero-init", "no", "--world-size", "3"},
                    4, "damaged");
      WriteBytes(entry.path(), whole);
    }
  }
}

TEST_F(ConvertCliTest, ASourceThatIsNotThere) {
  ExpectRefused({Out("nothing"), Out(), "--to", "native"}, 3, "nothing");
  ExpectRefused({FixturePath("torchfiles/plain.pt").string(), Out()}, 2,
                "--to says which");
}

TEST_F(ConvertCliTest, ATorchFileBecomesSafetensors) {
  const auto json = ConvertJson({FixturePath("torchfiles/plain.pt").string(),
                                 Out(), "--to", "safetensors", "--verify"});
  EXPECT_EQ(json["target"]["tag"], "plain");
  EXPECT_THAT(Snapshot(Out()), Contains(Key("plain/model.safetensors")));
}

TEST_F(ConvertCliTest, JsonErrors) {
  const auto json =
      ConvertJson({source_, Out(), "--to", "native", "--stage", "3"}, 2);
  EXPECT_EQ(json["command"], "convert");
  EXPECT_EQ(json["error"]["code"], "InvalidArgument");
}

}  // namespace
}  // namespace muonstore::testutil
