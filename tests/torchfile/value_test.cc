// The cursor over a value tree.

#include <string>

#include <gtest/gtest.h>

#include "formats/torchfile/tensor_paths.h"
#include "formats/torchfile/torch_file.h"
#include "tests/torchfile/expect_error.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/pickle_builder.h"

namespace muonstore::torchfile {
namespace {

using pickle::Dict;
using pickle::Str;

std::shared_ptr<const TorchFile> OpenBody(const std::string& body) {
  return OpenBytes(TorchZip(pickle::Whole(body), {pickle::Floats(6)}));
}

TEST(Value, TypedAccess) {
  const auto file = OpenBody(Dict({{"int", "K\x05"},
                                   {"bool", "\x88"},
                                   {"float", "F1.5\n"},
                                   {"str", Str("x")},
                                   {"none", "N"},
                                   {"big", "L99999999999999999999L\n"},
                                   {"bytes", "C\x02hi"},
                                   {"tensor", pickle::Tensor()}}));
  const Value root = file->RequireDict();
  EXPECT_EQ(root.Get("int").AsInt(), 5);
  EXPECT_EQ(root.Get("bool").AsInt(), 1);
  EXPECT_TRUE(root.Get("bool").AsBool());
  EXPECT_EQ(root.Get("int").AsNumber(), 5.0);
  EXPECT_EQ(root.Get("float").AsNumber(), 1.5);
  EXPECT_EQ(root.Get("str").AsString(), "x");
  EXPECT_EQ(root.Get("bytes").AsBytes(), "hi");
  EXPECT_TRUE(root.Get("none").is_none());
  const Value number = root.Get("int");
  EXPECT_ERROR(number.AsBool(), ErrorCode::kDataLoss,
               "expected a bool, found int 5");
  EXPECT_ERROR(number.AsString(), ErrorCode::kDataLoss, "expected a str");
  EXPECT_ERROR(number.AsBytes(), ErrorCode::kDataLoss, "expected bytes");
  EXPECT_ERROR(number.AsTensor(), ErrorCode::kDataLoss, "expected a tensor");
  EXPECT_ERROR(number.AsStorage(), ErrorCode::kDataLoss, "expected a storage");
  EXPECT_ERROR(number.size(), ErrorCode::kDataLoss, "expected a container");
  EXPECT_ERROR(number.Find("x"), ErrorCode::kDataLoss, "expected a dict");
  EXPECT_ERROR(root.Get("float").AsInt(), ErrorCode::kDataLoss, "int");
  EXPECT_ERROR(root.Get("big").AsInt(), ErrorCode::kDataLoss, "64 bits");
  EXPECT_ERROR(root.Get("str").AsNumber(), ErrorCode::kDataLoss, "a number");
  EXPECT_ERROR(root.at(0), ErrorCode::kDataLoss, "a list or tuple");
}

TEST(Value, MissingKeysNameThoseThatAreThere) {
  const auto file = OpenBody(Dict({{"first", "N"}, {"second\n", "N"}}));
  EXPECT_ERROR(file->root().Get("third"), ErrorCode::kDataLoss,
               "expected key 'third', found first, second\\x0a");
  EXPECT_ERROR(OpenBody("}")->root().Get("x"), ErrorCode::kDataLoss,
               "an empty dict");
}

TEST(Value, ItemsAndEntriesAreBounded) {
  const auto list = OpenBody(
      "](K\x01K\x02"
      "e");
  EXPECT_EQ(list->root().at(1).AsInt(), 2);
  EXPECT_ERROR(list->root().at(2), ErrorCode::kDataLoss, "at least 3 items");
  const auto dict = OpenBody(Dict({{"k", "K\x07"}}));
  EXPECT_EQ(dict->root().entry(0).first.AsString(), "k");
  EXPECT_ERROR(dict->root().entry(1), ErrorCode::kDataLoss, "2 entries");
  EXPECT_ERROR(list->root().entry(0), ErrorCode::kDataLoss, "a dict");
}

// Small dicts are searched one by one, large ones by an index.
TEST(Value, FindsKeysInSmallAndLargeDicts) {
  for (const int count : {3, 300}) {
    std::string body = "}(";
    for (int i = 0; i < count; ++i) {
      body += pickle::Int(i) + pickle::Int(1000 + i);
      body += Str("k" + std::to_string(i)) + pickle::Int(2000 + i);
    }
    // A key set twice counts as set by the last one; other types are ignored.
    body += Str("k1") + "K\x05" + "NK\x06" + "\x88K\x07" + "u";
    const auto file = OpenBody(body);
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(file->root().Find(i)->AsInt(), 1000 + i);
      EXPECT_EQ(file->root().Get("k" + std::to_string(i)).AsInt(),
                i == 1 ? 5 : 2000 + i);
    }
    EXPECT_FALSE(file->root().Find(count).has_value());
    EXPECT_FALSE(file->root().Find("k").has_value());
    EXPECT_FALSE(file->root().Find("1").has_value());
  }
}

TEST(Value, DescribeIsShortAndPrintable) {
  const auto shown = [](const std::string& body, size_t limit = 200) {
    return OpenBody(body)->root().Describe(limit);
  };
  EXPECT_EQ(shown(pickle::Tensor()), "tensor f32[2, 3]");
  EXPECT_EQ(shown(Str("a\n\x1b[31m")), "str 'a\\x0a\\x1b[31m'");
  EXPECT_EQ(shown(pickle::GlobalName("m.n", "LossScaler") + ")\x81" +
                  Dict({{"cur_scale", "F1.0\n"}, {"n", "N"}}) + "b"),
            "m.n.LossScaler{'cur_scale': 1, 'n': None}");
  EXPECT_EQ(shown("](K\x01K\x02K\x03"
                  "e",
                  9),
            "list [...");
  EXPECT_EQ(shown(Str(std::string(5000, 'x')), 20), "str 'xxxxxxxxxxxx...");
  EXPECT_EQ(shown(Str("\u00e9\u00e9\u00e9\u00e9"), 10), "str '\u00e9...");
  EXPECT_EQ(shown(Str("abc"), 2), "..");
  EXPECT_EQ(shown(Str("abc"), 0), "");
  for (size_t limit = 0; limit < 60; ++limit) {
    EXPECT_LE(shown(Dict({{"\u2603", pickle::Tensor()}}), limit).size(), limit);
  }
}

TEST(Value, TensorPaths) {
  const auto file = OpenBody(Dict(
      {{"a", pickle::Tensor()},
       {"list", "](" + pickle::Tensor() + "K\x01" + pickle::Tensor() + "e"},
       {"nested", "}K\x03" + Dict({{"x/y", pickle::Tensor()}}) + "s"}}));
  std::string paths;
  VisitTensors(file->tree(), [&](const std::string& path, const TensorInfo&) {
    paths += path + " ";
  });
  EXPECT_EQ(paths, "/a /list[0] /list[2] /nested/3/x/y ");
}

TEST(Value, TensorPathsEndInCycles) {
  const auto file = OpenBody("]q\x01(" + pickle::Tensor() + "h\x01" + "e");
  int count = 0;
  VisitTensors(file->tree(),
               [&](const std::string&, const TensorInfo&) { ++count; });
  EXPECT_EQ(count, 1);
}

TEST(Value, LooksLikeTorchFile) {
  const auto looks = [](const std::string& bytes) {
    MemoryFile file(bytes);
    return LooksLikeTorchFile(file);
  };
  EXPECT_TRUE(looks(TorchZip("N.")));
  EXPECT_TRUE(looks("PK\x03\x04"));
  EXPECT_TRUE(looks("\x80\x02"));
  EXPECT_TRUE(looks("L119547037146038801333356L\n."));
  for (const std::string bytes : {"", "P", "\x80", "\x80\x06", "hello", "{}"}) {
    EXPECT_FALSE(looks(bytes)) << bytes;
  }
}

}  // namespace
}  // namespace muonstore::torchfile
