// Opcodes of pickle protocol 2, as bytes.
//
// What: scalars, texts, globals and the memo. Texts that are given by value and
//   globals are written once and recalled afterwards.
// Ownership: owns its output. Threads: one thread.
// Failures: Error(kUnsupported) for what protocol 2 cannot say: a text of 4 GiB
//   or more, a global with a line break in its name.

#ifndef MUONSTORE_FORMATS_TORCHFILE_PICKLE_WRITER_H_
#define MUONSTORE_FORMATS_TORCHFILE_PICKLE_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace muonstore::torchfile {

namespace opcode {
inline constexpr char kMark = '(';
inline constexpr char kStop = '.';
inline constexpr char kPop = '0';
inline constexpr char kNone = 'N';
inline constexpr char kTrue = '\x88';
inline constexpr char kFalse = '\x89';
inline constexpr char kEmptyList = ']';
inline constexpr char kEmptyDict = '}';
inline constexpr char kEmptyTuple = ')';
inline constexpr char kTuple = 't';
inline constexpr char kTuple1 = '\x85';
inline constexpr char kTuple2 = '\x86';
inline constexpr char kTuple3 = '\x87';
inline constexpr char kAppend = 'a';
inline constexpr char kAppends = 'e';
inline constexpr char kSetItem = 's';
inline constexpr char kSetItems = 'u';
inline constexpr char kReduce = 'R';
inline constexpr char kNewObj = '\x81';
inline constexpr char kNewObjEx = '\x92';
inline constexpr char kBuild = 'b';
inline constexpr char kPersistentId = 'Q';
}  // namespace opcode

class PickleWriter {
 public:
  PickleWriter();  // Begins with PROTO 2.

  void Op(char opcode) { bytes_ += opcode; }
  void Int(int64_t value);
  // Two's complement little-endian bytes, shortest form.
  void BigInt(std::string_view bytes);
  void Float(double value);
  // A str, UTF-8; not remembered.
  void Str(std::string_view utf8);
  // The same, recalled from the memo where it occurred before.
  void CommonStr(std::string_view utf8);
  void Global(std::string_view module, std::string_view name);

  // Numbers the value on top of the stack.
  uint32_t Put();
  void Get(uint32_t number);
  uint32_t num_memo_entries() const { return next_number_; }

  std::string Take() && { return std::move(bytes_); }

 private:
  template <typename T>
  void Number(T value);

  std::string bytes_;
  uint32_t next_number_ = 0;
  std::unordered_map<std::string, uint32_t> common_strings_;
  std::unordered_map<std::string, uint32_t> globals_;
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_PICKLE_WRITER_H_
