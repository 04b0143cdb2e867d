// tools/common: small pieces without a checkpoint.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/common/exit_code.h"
#include "tools/common/glob.h"
#include "tools/common/json.h"
#include "tools/common/output.h"
#include "tools/common/progress.h"
#include "tools/common/table.h"
#include "tools/common/units.h"

namespace muonstore::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ExitCodeFor, EveryCode) {
  EXPECT_EQ(ExitCodeFor(ErrorCode::kInvalidArgument), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeFor(ErrorCode::kNotFound), ExitCode::kIo);
  EXPECT_EQ(ExitCodeFor(ErrorCode::kUnavailable), ExitCode::kIo);
  EXPECT_EQ(ExitCodeFor(ErrorCode::kResourceExhausted), ExitCode::kIo);
  EXPECT_EQ(ExitCodeFor(ErrorCode::kDataLoss), ExitCode::kUnreadable);
  EXPECT_EQ(ExitCodeFor(ErrorCode::kUnsupported), ExitCode::kUnreadable);
  EXPECT_EQ(ExitCodeFor(ErrorCode::kInternal), ExitCode::kInternal);
  EXPECT_EQ(static_cast<int>(ExitCode::kInternal), 70);
}

TEST(GlobMatches, StarMatchesDotsAndSlashes) {
  EXPECT_TRUE(GlobMatches("*", "blocks.0.fc1.weight"));
  EXPECT_TRUE(GlobMatches("blocks.*.weight", "blocks.0.fc1.weight"));
  EXPECT_TRUE(GlobMatches("*.weight", ".a/b.weight"));
  EXPECT_TRUE(GlobMatches("blocks.[01].fc?.weight", "blocks.1.fc2.weight"));
  EXPECT_FALSE(GlobMatches("blocks.[01].fc?.weight", "blocks.2.fc2.weight"));
  EXPECT_FALSE(GlobMatches("fc1", "blocks.0.fc1.weight"));
}

TEST(GlobMatches, ANameMatchesItself) {
  for (const std::string name : {"a[0]", "we*ird?", "[", "back\\slash", ""}) {
    EXPECT_TRUE(GlobMatches(name, name)) << name;
  }
}

TEST(NearNames, ClosestFirst) {
  const std::vector<std::string> names = {
      "blocks.0.fc1.weight", "blocks.0.fc2.weight", "embed.weight", "norm"};
  EXPECT_THAT(NearNames("blocks.0.fc3.weight", names, 2),
              ElementsAre("blocks.0.fc1.weight", "blocks.0.fc2.weight"));
  EXPECT_THAT(NearNames("*embed", names, 1), ElementsAre("embed.weight"));
  EXPECT_THAT(NearNames("x", {}, 3), ElementsAre());
  EXPECT_THAT(NearNames(std::string(1000, 'x'), names, 1).size(), 1);
}

TEST(Units, Bytes) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1024), "1.0 KiB");
  EXPECT_EQ(HumanBytes(1024 * 1024 - 1), "1.0 MiB");
  EXPECT_EQ(HumanBytes(3 * 1024 * 1024 / 2), "1.5 MiB");
  EXPECT_EQ(HumanBytes(std::numeric_limits<uint64_t>::max()), "16.0 EiB");
}

TEST(Units, CountsAgesAndNumbers) {
  EXPECT_EQ(HumanCount(0), "0");
  EXPECT_EQ(HumanCount(999), "999");
  EXPECT_EQ(HumanCount(1000), "1,000");
  EXPECT_EQ(HumanCount(-1234567), "-1,234,567");
  EXPECT_EQ(HumanAge(-5), "0 s");
  EXPECT_EQ(HumanAge(59), "59 s");
  EXPECT_EQ(HumanAge(60), "1 min");
  EXPECT_EQ(HumanAge(7200), "2 h");
  EXPECT_EQ(HumanAge(86400), "1 day");
  EXPECT_EQ(HumanAge(200000), "2 days");
  EXPECT_EQ(ShortNumber(0.0123456), "0.01235");
  EXPECT_EQ(ShortNumber(1e30), "1e+30");
  EXPECT_EQ(ShortNumber(std::nullopt), "-");
  EXPECT_EQ(ShortNumber(std::nan("")), "nan");
  EXPECT_EQ(Percent(0.125), "12.5 %");
}

TEST(Table, AlignsColumnsAndTrimsLines) {
  Table table({{"name"}, {"size", Table::Align::kRight}, {""}});
  table.AddRow({"a", "10", "note"});
  table.AddRow({"\xC3\xA9t\xC3\xA9", "7"});  // Two bytes, one column each.
  EXPECT_EQ(table.ToString(),
            "name  size\n"
            "a       10  note\n"
            "\xC3\xA9t\xC3\xA9      7\n");
  EXPECT_EQ(Table({{"x"}}).ToString(), "x\n");
  EXPECT_TRUE(Table({{""}}).ToString().empty());
}

TEST(Json, EnvelopeComesFirst) {
  EXPECT_EQ(JsonEnvelope("list").dump(),
            R"({"schema_version":1,"command":"list"})");
}

TEST(Json, NumbersThatJsonLacks) {
  EXPECT_EQ(ToJson(std::nan("")).dump(), "\"nan\"");
  EXPECT_EQ(ToJson(std::numeric_limits<double>::infinity()).dump(), "\"inf\"");
  EXPECT_EQ(ToJson(-std::numeric_limits<double>::infinity()).dump(),
            "\"-inf\"");
  EXPECT_EQ(ToJson(0.1).dump(), "0.1");
  EXPECT_EQ(ToJson(std::optional<double>()).dump(), "null");
  EXPECT_EQ(ToJson(std::optional<int64_t>(7)).dump(), "7");
}

TEST(Json, Scalars) {
  const ScalarMap values = {{"lr", 0.5},
                            {"step", int64_t{3}},
                            {"on", true},
                            {"none", std::monostate()},
                            {"name", std::string("x")},
                            {"betas", std::vector<double>{0.5, 1}}};
  EXPECT_EQ(ToJson(values).dump(),
            R"({"lr":0.5,"step":3,"on":true,"none":null,"name":"x",)"
            R"("betas":[0.5,1.0]})");
}

TEST(Json, BrokenUtf8StillGivesValidJson) {
  Json json = JsonEnvelope("x");
  json["name"] = "bad \xFF name";
  const std::string text = Render(json);
  EXPECT_EQ(Json::parse(text)["name"], "bad \xEF\xBF\xBD name");
}

TEST(Json, ErrorsCarryTheirPlace) {
  const Error error(ErrorCode::kDataLoss, "cut",
                    {.file = "f.pt",
                     .tensor = "w",
                     .offset_bytes = 12,
                     .expected = "4",
                     .found = "3"});
  EXPECT_EQ(JsonError("verify", error).dump(),
            R"({"schema_version":1,"command":"verify","error":{)"
            R"("code":"DataLoss","message":"cut","file":"f.pt","tensor":"w",)"
            R"("offset_bytes":12,"expected":"4","found":"3"}})");
}

TEST(Json, Findings) {
  const Finding finding{.severity = Finding::Severity::kWarning,
                        .code = "replicas_differ",
                        .message = "by 1"};
  const Json json = ToJson(finding);
  EXPECT_EQ(json["severity"], "warning");
  EXPECT_EQ(json["code"], "replicas_differ");
  EXPECT_TRUE(json["file"].is_null());
}

TEST(Output, AClosedPipeIsSilent) {
  std::array<int, 2> fds{};
  ASSERT_EQ(::pipe2(fds.data(), O_CLOEXEC), 0);
  ::close(fds[0]);
  const auto previous = ::signal(SIGPIPE, SIG_IGN);
  Output out(fds[1]);
  out.Write("nobody reads this");
  EXPECT_NO_THROW(out.Flush());
  out.Write("nor this");
  EXPECT_NO_THROW(out.Flush());
  ::signal(SIGPIPE, previous);
  ::close(fds[1]);
}

TEST(Output, AFullDiskIsAnError) {
  const int fd = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  Output out(fd);
  out.Write("x");
  try {
    out.Flush();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr("standard output"));
  }
  ::close(fd);
}

TEST(ParseBytes, DecimalAndBinaryUnits) {
  EXPECT_EQ(ParseBytes("4096"), 4096U);
  EXPECT_EQ(ParseBytes("5GB"), 5'000'000'000U);
  EXPECT_EQ(ParseBytes("256MiB"), 256U << 20);
  EXPECT_EQ(ParseBytes("1.5GiB"), 3U << 29);
  EXPECT_EQ(ParseBytes("0"), 0U);
  for (const char* text : {"", "GB", "5gb", "5 GB", "-1", "nan", "inf", "1e30",
                           "5GBs", "9999999TiB"}) {
    EXPECT_FALSE(ParseBytes(text).has_value()) << text;
  }
}

TEST(ProgressLine, Texts) {
  const ProgressLine line(false);
  EXPECT_EQ(line.Text(0, 0), "reading  100 %  0 B of 0 B");
  EXPECT_EQ(line.Text(512, 2048), "reading  25 %  512 B of 2.0 KiB");
  EXPECT_EQ(ProgressLine(false, "writing").Text(1, 2),
            "writing  50 %  1 B of 2 B");
}

TEST(ProgressLine, IsSilentWhereThereIsNoTerminal) {
  ProgressLine line(false);
  EXPECT_FALSE(line.callback());
}

}  // namespace
}  // namespace muonstore::tools
