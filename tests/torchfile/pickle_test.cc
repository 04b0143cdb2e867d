// The stack machine: every opcode, and every way to break one.

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/torchfile/torch_file.h"
#include "tests/torchfile/expect_error.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/pickle_builder.h"

namespace muonstore::torchfile {
namespace {

using pickle::Proto;
using std::string_literals::operator""s;

// The root of a pickle, as Describe() shows it.
std::string Shown(const std::string& opcodes) {
  return OpenBytes(TorchZip(opcodes + "."))->root().Describe(300);
}

void ExpectMalformed(const std::string& opcodes, const std::string& text,
                     ErrorCode code = ErrorCode::kDataLoss) {
  EXPECT_ERROR(OpenBytes(TorchZip(opcodes)), code, text);
}

TEST(Pickle, Scalars) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"N", "None"},
      {"\x88", "bool True"},
      {"\x89", "bool False"},
      {"I01\n", "bool True"},
      {"I00\n", "bool False"},
      {"I-17\n", "int -17"},
      {"I9223372036854775807\n", "int 9223372036854775807"},
      {"I9223372036854775808\n", "int of 72 bits"},
      {"L-9223372036854775808L\n", "int -9223372036854775808"},
      {"L12\n", "int 12"},
      {"J\xff\xff\xff\xff", "int -1"},
      {"K\xff", "int 255"},
      {"M\xff\xff", "int 65535"},
      {"\x8a\x00"s, "int 0"},
      {"\x8a\x01\x80", "int -128"},
      {"\x8a\x02\xff\x00"s, "int 255"},
      {"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00"s, "int of 72 bits"},
      {"\x8b\x01\x00\x00\x00\x05"s, "int 5"},
      {"F1e-08\n", "float 1e-08"},
      {"F+2.5\n", "float 2.5"},
      {"F-inf\n", "float -inf"},
      {"G\x3f\xf8\x00\x00\x00\x00\x00\x00"s, "float 1.5"},
      {"X\x02\x00\x00\x00hi"s, "str 'hi'"},
      {"\x8c\x02hi", "str 'hi'"},
      {"\x8d\x02\x00\x00\x00\x00\x00\x00\x00hi"s, "str 'hi'"},
      {"V\\u00e9 \\U0001F600\xe9\n", "str '\u00e9 \U0001F600\u00e9'"},
      {"S'a\\'b\\x41\\n\\101'\n", "str 'a'bA\\x0aA'"},
      {"S\"x\"\n", "str 'x'"},
      {"T\x02\x00\x00\x00hi"s, "str 'hi'"},
      {"U\x02hi", "str 'hi'"},
      {"U\x02\xff\xfe", "bytes[2]"},
      {"B\x03\x00\x00\x00"
       "abc"s,
       "bytes[3]"},
      {"C\x03"
       "abc",
       "bytes[3]"},
      {"\x8e\x03\x00\x00\x00\x00\x00\x00\x00"
       "abc"s,
       "bytes[3]"},
      {"\x96\x03\x00\x00\x00\x00\x00\x00\x00"
       "abc"s,
       "bytes[3]"},
      {"X\x03\x00\x00\x00\xed\xa0\x80"s, "str '\\xed\\xa0\\x80'"},
      {"cm\nn\n", "global m.n"},
      {"\x8c\x01m\x8c\x01n\x93", "global m.n"},
  };
  for (const auto& [opcodes, shown] : cases) {
    EXPECT_EQ(Shown(opcodes), shown);
  }
}

TEST(Pickle, Containers) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {")", "tuple ()"},
      {"]", "list []"},
      {"}", "dict {}"},
      {"\x8f", "set {}"},
      {"K\x01\x85", "tuple (1,)"},
      {"K\x01K\x02\x86", "tuple (1, 2)"},
      {"K\x01K\x02K\x03\x87", "tuple (1, 2, 3)"},
      {"(K\x01K\x02K\x03K\x04t", "tuple (1, 2, 3, 4)"},
      {"(t", "tuple ()"},
      {"(K\x01K\x02l", "list [1, 2]"},
      {"(K\x01K\x02"
       "d",
       "dict {1: 2}"},
      {"]K\x01"
       "a",
       "list [1]"},
      {"](K\x01K\x02"
       "e",
       "list [1, 2]"},
      {"}K\x01K\x02s", "dict {1: 2}"},
      {"}(K\x01K\x02K\x03K\x04u", "dict {1: 2, 3: 4}"},
      {"\x8f(K\x01K\x02\x90", "set {1, 2}"},
      {"(K\x01\x91", "set {1}"},
      {"(K\x01K\x02"
       "1K\x03",
       "int 3"},
      {"K\x07K\x01"
       "0",
       "int 7"},
      {"K\x07(0", "int 7"},
      {"K\x07"
       "2\x86",
       "tuple (7, 7)"},
  };
  for (const auto& [opcodes, shown] : cases) {
    EXPECT_EQ(Shown(opcodes), shown);
  }
}

TEST(Pickle, Memo) {
  EXPECT_EQ(Shown("]q\x01h\x01"
                  "a"),
            "list [[[[[...]]]]]");
  EXPECT_EQ(Shown("K\x07p3\ng3\n\x86"), "tuple (7, 7)");
  EXPECT_EQ(Shown("K\x07r\x02\x00\x00\x00j\x02\x00\x00\x00\x86"s),
            "tuple (7, 7)");
  EXPECT_EQ(Shown("K\x07\x94K\x08\x94h\x00h\x01\x86\x87"s),
            "tuple (7, 8, (7, 8))");
  // A number far ahead, within the bytes read; MEMOIZE counts entries.
  EXPECT_EQ(Shown(pickle::Str(std::string(200, 'x')) + "q\xc8"
                                                       "0K\x01\x94"
                                                       "0h\x01"),
            "int 1");
}

TEST(Pickle, SharedNodesKeepOneId) {
  const auto file = OpenBytes(TorchZip(pickle::Whole("(]q\x01h\x01]t")));
  const Value root = file->root();
  EXPECT_EQ(root.at(0).id(), root.at(1).id());
  EXPECT_NE(root.at(0).id(), root.at(2).id());
}

TEST(Pickle, ProtocolIsKept) {
  for (uint8_t protocol = 0; protocol <= 5; ++protocol) {
    EXPECT_EQ(OpenBytes(TorchZip(Proto(protocol) + "N."))->tree().protocol,
              protocol);
  }
  EXPECT_EQ(
      OpenBytes(TorchZip("\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00N."s))
          ->tree()
          .protocol,
      4);
}

TEST(Pickle, ObjectsKeepWhatAWriterNeeds) {
  const auto file = OpenBytes(
      TorchZip(pickle::Proto(4) + "(" +
               // Construction by REDUCE with state and items of both kinds.
               pickle::GlobalName("pkg.mod", "Thing") + "K\x01\x85R" +
               pickle::Dict({{"x", "K\x02"}}) +
               "b(K\x03K\x04"
               "e(K\x05K\x06u" +
               // NEWOBJ and NEWOBJ_EX.
               pickle::GlobalName("pkg.mod", "Point") + "K\x07K\x08\x86\x81" +
               pickle::GlobalName("pkg.mod", "Keyed") + ")" +
               pickle::Dict({{"k", "K\x09"}}) + "\x92" + "t."));
  const Value thing = file->root().at(0);
  EXPECT_EQ(thing.cls()->ToString(), "pkg.mod.Thing");
  EXPECT_EQ(thing.node().construction, Construction::kReduce);
  EXPECT_EQ(thing.arg(0)->AsInt(), 1);
  EXPECT_FALSE(thing.arg(1).has_value());
  EXPECT_EQ(thing.Attribute("x")->AsInt(), 2);
  EXPECT_FALSE(thing.Attribute("y").has_value());
  ASSERT_EQ(thing.list_items().size(), 2u);
  EXPECT_EQ(Value(file->tree(), thing.list_items()[1]).AsInt(), 4);
  EXPECT_EQ(thing.Find(5)->AsInt(), 6);
  const Value point = file->root().at(1);
  EXPECT_EQ(point.node().construction, Construction::kNewObj);
  EXPECT_EQ(point.arg(1)->AsInt(), 8);
  const Value keyed = file->root().at(2);
  EXPECT_EQ(keyed.node().construction, Construction::kNewObjEx);
  EXPECT_EQ(keyed.kwargs()->Get("k").AsInt(), 9);
}

TEST(Pickle, ObjectsOfOneClassDoNotShareState) {
  const auto file = OpenBytes(TorchZip(
      pickle::Whole("(" + pickle::OrderedDict() + pickle::OrderedDict() +
                    pickle::Dict({{"_metadata", "K\x01"}}) + "b" +
                    pickle::OrderedDict() + "t")));
  EXPECT_FALSE(file->root().at(0).Attribute("_metadata").has_value());
  EXPECT_EQ(file->root().at(1).Attribute("_metadata")->AsInt(), 1);
  EXPECT_FALSE(file->root().at(2).Attribute("_metadata").has_value());
}

TEST(Pickle, SlotsState) {
  const auto file = OpenBytes(
      TorchZip(pickle::Whole(pickle::GlobalName("m", "C") + ")\x81(N" +
                             pickle::Dict({{"slot", "K\x05"}}) + "tb")));
  EXPECT_EQ(file->root().Attribute("slot")->AsInt(), 5);
}

TEST(Pickle, InstAndObj) {
  EXPECT_EQ(Shown("(K\x01K\x02ipkg\nCls\n"), "pkg.Cls(1, 2)");
  EXPECT_EQ(Shown("(cpkg\nCls\nK\x01o"), "pkg.Cls(1)");
}

TEST(Pickle, Malformed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "ends too early"},
      {"N", "ends too early"},
      {".", "stack is empty"},
      {"NN.", "left on the stack"},
      {"(N.", "stack"},
      {"N(.", "stack is empty"},
      {"a.", "stack is empty"},
      {"Na.", "stack is empty"},
      {"(a.", "stack is empty"},
      {"\xf0.", "unknown pickle opcode 240"},
      {"\xff.", "unknown pickle opcode 255"},
      {"h\x05.", "memo entry 5"},
      {"g9\n.", "memo entry 9"},
      {"gx\n.", "no number"},
      {"q\x01.", "stack is empty"},
      {"Nr\xff\xff\xff\xff.", "memo entry 4294967295"},
      {"X\xff\xff\xff\x7f"
       "ab.",
       "ends too early"},
      {"\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "ends too early"},
      {"B\xff\xff\xff\xff.", "ends too early"},
      {"T\xff\xff\xff\xff.", "negative"},
      {"\x8b\xff\xff\xff\xff.", "negative"},
      {"X\x02\x00\x00\x00\xc3\x28."s, "not UTF-8"},
      {"X\x02\x00\x00\x00\xc0\x80."s, "not UTF-8"},
      {"X\x01\x00\x00\x00\xf8."s, "not UTF-8"},
      {"V\\u12\n.", "escape"},
      {"V\\U00110000\n.", "escape"},
      {"S'abc\n.", "quoted"},
      {"S'\\x4'\n.", "quoted"},
      {"I\n.", "decimal"},
      {"I1.5\n.", "decimal"},
      {"L" + std::string(4301, '9') + "L\n.", "4300 digits"},
      {"Fabc\n.", "no number"},
      {"F1e999\n.", "out of range"},
      {"I12", "ends too early"},
      {"t.", "no mark"},
      {"1.", "no mark"},
      {"0.", "stack is empty"},
      {"2.", "stack is empty"},
      {"}(K\x01u.", "without a value"},
      {"(K\x01"
       "d.",
       "without a value"},
      {"](K\x01K\x02u.", "SETITEMS needs a dict"},
      {"}K\x01"
       "a.",
       "APPEND needs a list"},
      {"](K\x01\x90.", "ADDITEMS needs a set"},
      {"ccollections\nOrderedDict\nK\x01R.", "bad arguments"},
      {"K\x01)R.", "no class"},
      {"cm\nC\nK\x01\x81.", "bad arguments"},
      {"cm\nC\n)K\x01\x92.", "no dict"},
      {"(o.", "OBJ without a class"},
      {"]}b.", "BUILD needs an object"},
      {"K\x01}b.", "BUILD needs an object"},
      {"cm\nC\n)R}b}b.", "twice"},
      {"K\x01K\x02\x93.", "wrong type"},
      {"cm\n.", "ends too early"},
      {"c\xff\nx\n.", "not UTF-8"},
      {"c" + std::string(1025, 'x') + "\nx\n.", "too long"},
      {"P0\n.", "not a tuple"},
      {"K\x01Q.", "malformed"},
      {")Q.", "malformed"},
      {"\x80\x06N.", "protocol 6"},
      {"\x80\xffN.", "protocol 255"},
      {"\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.", "ends too early"},
      {"N.N.", "bytes follow"},
  };
  for (const auto& [opcodes, text] : cases) {
    SCOPED_TRACE(text);
    ExpectMalformed(opcodes, text);
  }
}

TEST(Pickle, UnsupportedOpcodes) {
  for (const char* opcodes : {"\x82\x01.", "\x83\x01\x01.", "\x84....."}) {
    ExpectMalformed(opcodes, "extension", ErrorCode::kUnsupported);
  }
  ExpectMalformed("\x97.", "buffers", ErrorCode::kUnsupported);
  ExpectMalformed("\x98.", "buffers", ErrorCode::kUnsupported);
}

TEST(Pickle, ErrorsGiveTheOffsetInTheFile) {
  const std::string bytes = TorchZip("\x80\x02NN\xf0");
  try {
    OpenBytes(bytes);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.place().offset_bytes, bytes.find("NN\xf0") + 2);
    EXPECT_EQ(e.place().file, "memory.pt");
  }
}

TEST(Pickle, DeepAndCyclicValues) {
  const int depth = 200000;
  const auto deep = OpenBytes(TorchZip(Proto(2) + std::string(depth, ']') +
                                       std::string(depth - 1, 'a') + "."));
  EXPECT_EQ(deep->root().Describe(), "list [[[[[...]]]]]");
  EXPECT_TRUE(deep->Verify().empty());
  // 2^30 logical items: each list holds the one before twice.
  std::string laughs = Proto(2) + "]q" + '\0' + "0";
  for (int i = 0; i < 30; ++i) {
    laughs += std::string("]q") + static_cast<char>(i + 1) + "(h" +
              static_cast<char>(i) + "h" + static_cast<char>(i) + "e0";
  }
  const auto file = OpenBytes(TorchZip(laughs + "h\x1e."));
  EXPECT_EQ(file->root().size(), 2u);
  EXPECT_LT(file->tree().nodes.size(), 40u);
}

TEST(Pickle, LargeTextsAndLongLines) {
  const std::string big(3 << 20, 'y');
  const auto file =
      OpenBytes(TorchZip("(X" + Bytes(static_cast<uint32_t>(big.size())) + big +
                         "V" + big + "\nK\x05t."));
  EXPECT_EQ(file->root().at(0).AsString(), big);
  EXPECT_EQ(file->root().at(1).AsString(), big);
  EXPECT_EQ(file->root().at(2).AsInt(), 5);
  ExpectMalformed("V" + big, "ends too early");
}

}  // namespace
}  // namespace muonstore::torchfile
