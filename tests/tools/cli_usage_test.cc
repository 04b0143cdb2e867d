// The command line itself: usage, help, exit codes, pipes and signals.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/cli.h"

namespace muonstore::testutil {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const char* const kCommands[] = {"summary",  "list",   "tensors", "stats",
                                 "momentum", "verify", "diff",    "dump"};

TEST(Usage, HelpTeaches) {
  const ProcessResult result = Inspect({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, IsEmpty());
  for (const char* command : kCommands) {
    EXPECT_THAT(result.out, HasSubstr(command));
  }
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("Examples:"), HasSubstr("Exit codes: 0 fine")));
}

TEST(Usage, EveryCommandHasHelpWithExamples) {
  for (const char* command : kCommands) {
    const ProcessResult result = Inspect({command, "--help"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_THAT(result.out,
                AllOf(HasSubstr("Examples:"), HasSubstr("Exit codes:"),
                      HasSubstr("--json"),
                      HasSubstr(std::string("ckpt-inspect ") + command)));
  }
}

TEST(Usage, Version) {
  const ProcessResult result = Inspect({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "ckpt-inspect " MUONSTORE_VERSION "\n");
}

TEST(Usage, MistakesAreExitCode2) {
  const std::string root = CheckpointRoot("s2-ws2-bf16-none-base");
  const std::vector<std::vector<std::string>> lines = {
      {},
      {"summary"},
      {"no-such-command"},
      {"summary", root, "--no-such-flag"},
      {"summary", root, "surplus"},
      {"stats", root, "--per-head", "0"},
      {"stats", root, "--per-head", "x"},
      {"stats", root, "--per-head", "2", "--split", "1,2"},
      {"stats", root, "--top", "17"},
      {"stats", root, "--fail-on", "sick"},
      {"stats", root, "--fail-on", "identical"},
      {"stats", root, "--vs-tag", "step5"},
      {"diff", root},
      {"diff", root, root, "--rtol", "-1"},
      {"diff", root, root, "--rtol", "nan"},
      {"diff", root, root, "--rtol=-nan"},
      {"diff", root, root, "--atol", "inf"},
      {"diff", root, root, "--atol", "x"},
      {"diff", root, root, "--tag-a", ""},
      {"diff", root, root, "--param="},
      {"stats", root, "--vs", ""},
      {"summary", root, "--tag", ""},
      {"summary", ""},
      {"dump", root, "--param", "odd.weight", "--state", "momentum", "-o", ""},
      {"dump", root, "--param", "odd.weight", "--state", "momentum", "--rows",
       ""},
      {"dump", root, "--param", "odd.weight"},
      {"dump", root, "--param", "odd.weight", "--state", "momentum", "--rows",
       "1"},
      {"summary", root, "--jobs", "2"},
  };
  for (const auto& line : lines) {
    const ProcessResult result = Inspect(line);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr("ckpt-inspect: error: "));
  }
}

TEST(Usage, AnUnknownCommandListsTheCommands) {
  EXPECT_THAT(Inspect({"sumary"}).err,
              AllOf(HasSubstr("'sumary'"), HasSubstr("summary, list")));
}

TEST(Usage, OptionsMayComeBeforeTheCommand) {
  const std::string root = CheckpointRoot("s2-ws2-bf16-none-base");
  const auto answer = InspectJson({"--tag", "step5", "tensors", root});
  EXPECT_EQ(answer["command"], "tensors");
}

TEST(Usage, APathAloneIsASummary) {
  const std::string root = CheckpointRoot("s2-ws2-bf16-none-base");
  EXPECT_EQ(Inspect({root}).out, Inspect({"summary", root}).out);
  EXPECT_EQ(InspectJson({root})["command"], "summary");
}

TEST(Errors, AMissingPathIsExitCode3) {
  for (const char* command :
       {"summary", "list", "tensors", "stats", "momentum", "verify"}) {
    const ProcessResult result = Inspect({command, "/no/such/place"});
    EXPECT_EQ(result.exit_code, 3) << command;
    EXPECT_THAT(result.err, HasSubstr("/no/such/place"));
    EXPECT_THAT(result.out, IsEmpty());
  }
}

TEST(Errors, JsonHasThemOnStandardOutput) {
  const auto answer = InspectJson({"verify", "/no/such/place"}, 3);
  EXPECT_EQ(answer["command"], "verify");
  EXPECT_EQ(answer["error"]["code"], "NotFound");
  EXPECT_EQ(answer["error"]["file"], "/no/such/place");
  for (const char* key :
       {"message", "tensor", "offset_bytes", "expected", "found"}) {
    EXPECT_TRUE(answer["error"].contains(key)) << key;
  }
  EXPECT_EQ(InspectJson({"summary", "--bad"}, 2)["error"]["code"],
            "InvalidArgument");
}

TEST(Errors, NamesAreMadePrintable) {
  const ProcessResult result = Inspect({"summary", "/no/\x1b[31mred\xFF"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, Not(HasSubstr("\x1b")));
  EXPECT_THAT(result.err, HasSubstr("\\x1b[31mred\\xff"));
  const auto answer = InspectJson({"summary", "/no/\x1b[31mred\xFF"}, 3);
  EXPECT_EQ(answer["error"]["file"], "/no/\x1b[31mred\xEF\xBF\xBD");
}

TEST(Errors, AFileThatIsNoCheckpointIsExitCode4) {
  const auto path =
      std::filesystem::path(testing::TempDir()) / "not_a_checkpoint.pt";
  std::ofstream(path) << "this is text, and no checkpoint at all";
  const ProcessResult result = Inspect({path.string()});
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(result.err, HasSubstr("not_a_checkpoint.pt"));
  std::filesystem::remove(path);
}

TEST(Pipes, AClosedPipeIsSilent) {
  const std::string root = CheckpointRoot("s2-ws2-bf16-none-base");
  ProcessOptions options;
  options.close_stdout = true;
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"--help"},
        {"tensors", root},
        {"tensors", root, "--json"}}) {
    const ProcessResult result = Inspect(line, options);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.signal, 0);
    EXPECT_THAT(result.err, IsEmpty());
  }
  EXPECT_EQ(Inspect({"/no/such/place", "--json"}, options).exit_code, 3);
}

TEST(Pipes, AFullDiskIsExitCode3) {
  const std::string root = CheckpointRoot("s2-ws2-bf16-none-base");
  const ProcessResult result = RunProcess(
      {"sh", "-c", "\"$0\" \"$1\" > /dev/full", MUONSTORE_CKPT_INSPECT, root});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("standard output"));
}

TEST(Pipes, AClosedDescriptorIsExitCode3AndSpoilsNoFile) {
  const std::string root = CheckpointRoot("s2-ws2-bf16-none-base");
  const auto path = std::filesystem::path(testing::TempDir()) / "closed.npy";
  const ProcessResult result =
      RunProcess({"sh", "-c",
                  "\"$0\" dump \"$1\" --param odd.weight --state momentum "
                  "-o \"$2\" >&-",
                  MUONSTORE_CKPT_INSPECT, root, path.string()});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(std::filesystem::file_size(path), 128 + 7 * 13 * sizeof(float));
  std::filesystem::remove(path);
}

TEST(Signals, AnInterruptEndsWith130) {
  // The pipe holds less than this command says: it is still writing.
  const std::string root = CheckpointRoot("s2-ws2-bf16-none-base");
  ProcessOptions options;
  options.on_first_output = [](int pid) { ::kill(pid, SIGINT); };
  // A program that is just done when the signal comes ends well: it may win
  // the race sometimes, not always.
  int interrupted = 0;
  for (int attempt = 0; attempt < 20 && interrupted == 0; ++attempt) {
    const ProcessResult result = Inspect({"tensors", root, "--json"}, options);
    EXPECT_THAT(result.exit_code, testing::AnyOf(0, 130));
    EXPECT_THAT(result.err, IsEmpty());
    interrupted += result.exit_code == 130 ? 1 : 0;
  }
  EXPECT_EQ(interrupted, 1);
}

}  // namespace
}  // namespace muonstore::testutil
