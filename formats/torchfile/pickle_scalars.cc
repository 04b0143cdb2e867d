// The opcodes that push one scalar.

#include <bit>
#include <charconv>
#include <limits>
#include <type_traits>
#include <utility>

#include "formats/torchfile/pickle_machine.h"
#include "formats/torchfile/text_codec.h"
#include "src/base/str.h"

namespace muonstore::torchfile {

void PickleMachine::PushNone() { Push(builder_.None()); }

template <bool kValue>
void PickleMachine::PushBool() {
  Push(builder_.Bool(kValue));
}

template <typename T>
void PickleMachine::BinInt() {
  Push(builder_.Int(reader_.ReadNumber<T>()));
}

template <typename Length>
uint64_t PickleMachine::ReadLength() {
  const Length length = reader_.ReadNumber<Length>();
  if constexpr (std::is_signed_v<Length>) {
    if (length < 0) {
      FailOpcode(StrCat("a length is negative: ", length));
    }
  }
  return static_cast<uint64_t>(length);
}

uint64_t PickleMachine::TextIndex() {
  const std::string_view line = reader_.ReadLine();
  uint64_t index = 0;
  const char* const end = line.data() + line.size();
  const auto result = std::from_chars(line.data(), end, index);
  if (line.empty() || result.ec != std::errc() || result.ptr != end) {
    FailOpcode("a memo index is no number");
  }
  return index;
}

void PickleMachine::PushDecimal(std::string_view digits) {
  auto bytes = DecodeDecimal(digits);
  if (!bytes.has_value()) {
    FailOpcode(StrCat("a decimal number is malformed or longer than ",
                      kMaxDecimalDigits, " digits"));
  }
  builder_.budget().ChargeText(bytes->size());
  Push(builder_.Long(*std::move(bytes)));
}

void PickleMachine::TextInt() {
  const std::string_view line = reader_.ReadLine();
  if (line == "00" || line == "01") {
    Push(builder_.Bool(line == "01"));
    return;
  }
  PushDecimal(line);
}

void PickleMachine::TextLong() {
  std::string_view line = reader_.ReadLine();
  if (line.ends_with('L')) {
    line.remove_suffix(1);
  }
  PushDecimal(line);
}

template <typename Length>
void PickleMachine::BinLong() {
  Push(builder_.Long(reader_.ReadString(ReadLength<Length>())));
}

void PickleMachine::TextFloat() {
  std::string_view line = reader_.ReadLine();
  if (line.starts_with('+')) {
    line.remove_prefix(1);
  }
  double value = 0;
  const char* const end = line.data() + line.size();
  const auto result = std::from_chars(line.data(), end, value);
  if (result.ec == std::errc::result_out_of_range && result.ptr == end) {
    // Python rounds to infinity or to zero; no pickler writes such a number.
    FailOpcode("a float is out of range");
  }
  if (line.empty() || result.ec != std::errc() || result.ptr != end) {
    FailOpcode("a float is no number");
  }
  Push(builder_.Float(value));
}

void PickleMachine::BinFloat() {
  // The only big-endian number of the format.
  const auto bits = __builtin_bswap64(reader_.ReadNumber<uint64_t>());
  Push(builder_.Float(std::bit_cast<double>(bits)));
}

template <typename Length>
void PickleMachine::BinUnicode() {
  std::string text = reader_.ReadString(ReadLength<Length>());
  if (!IsUtf8(text)) {
    FailOpcode("a str is not UTF-8");
  }
  Push(builder_.Text(ValueType::kString, std::move(text)));
}

void PickleMachine::TextUnicode() {
  auto text = DecodeRawUnicodeEscape(reader_.ReadLine());
  if (!text.has_value()) {
    FailOpcode("a str has a malformed escape");
  }
  builder_.budget().ChargeText(text->size());
  Push(builder_.Text(ValueType::kString, *std::move(text)));
}

// The str of Python 2: text where it is UTF-8, as torch.load takes it.
void PickleMachine::PushString(std::string bytes) {
  const ValueType type = IsUtf8(bytes) ? ValueType::kString : ValueType::kBytes;
  Push(builder_.Text(type, std::move(bytes)));
}

template <typename Length>
void PickleMachine::BinString() {
  PushString(reader_.ReadString(ReadLength<Length>()));
}

void PickleMachine::TextString() {
  auto bytes = DecodeStringLiteral(reader_.ReadLine());
  if (!bytes.has_value()) {
    FailOpcode("a quoted string is malformed");
  }
  builder_.budget().ChargeText(bytes->size());
  PushString(*std::move(bytes));
}

template <typename Length>
void PickleMachine::BinBytes() {
  Push(builder_.Text(ValueType::kBytes,
                     reader_.ReadString(ReadLength<Length>())));
}

void PickleMachine::ByteArray() {
  BinBytes<uint64_t>();
  const NodeId cls = builder_.GlobalNamed("builtins", "bytearray");
  builder_.SetClass(Top(),
                    static_cast<uint32_t>(builder_.tree().nodes[cls].value),
                    Construction::kNone);
}

template void PickleMachine::PushBool<true>();
template void PickleMachine::PushBool<false>();
template void PickleMachine::BinInt<int32_t>();
template void PickleMachine::BinInt<uint8_t>();
template void PickleMachine::BinInt<uint16_t>();
template void PickleMachine::BinLong<uint8_t>();
template void PickleMachine::BinLong<int32_t>();
template void PickleMachine::BinUnicode<uint8_t>();
template void PickleMachine::BinUnicode<uint32_t>();
template void PickleMachine::BinUnicode<uint64_t>();
template void PickleMachine::BinString<int32_t>();
template void PickleMachine::BinString<uint8_t>();
template void PickleMachine::BinBytes<uint8_t>();
template void PickleMachine::BinBytes<uint32_t>();
template void PickleMachine::BinBytes<uint64_t>();

}  // namespace muonstore::torchfile
