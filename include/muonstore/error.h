// The one exception type of the library.
//
// What: every failure that a caller can see is a `muonstore::Error`: a code to
//   branch on, a sentence for a person, and the place (file, tensor, offset,
//   expected, found) as separate fields for a program.
// Ownership: an Error owns its strings; copying may allocate.
// Threads: an Error is a value; share it like any other value.
// Failures: third-party and OS errors are translated where they arise; no
//   other exception type crosses the public interface, except std::bad_alloc.

#ifndef MUONSTORE_ERROR_H_
#define MUONSTORE_ERROR_H_

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

namespace muonstore {

// Few and coarse: a caller decides what to do next by the code alone.
enum class ErrorCode {
  kInvalidArgument,    // The caller asked for something that makes no sense.
  kNotFound,           // A named file, tag or tensor does not exist.
  kDataLoss,           // Bytes are missing, damaged or contradict each other.
  kUnsupported,        // Well-formed, but outside of what muonstore handles.
  kResourceExhausted,  // Memory, disk space, descriptors or a set limit.
  kUnavailable,        // The OS or a peer failed; trying again may help.
  kInternal,           // A bug in muonstore.
};

// "DataLoss", "NotFound", ...
std::string_view ErrorCodeName(ErrorCode code);

// Where something went wrong. Empty fields are unknown.
struct ErrorPlace {
  std::string file = {};                      // Path as the caller gave it.
  std::string tensor = {};                    // Parameter name, or name/kind.
  std::optional<uint64_t> offset_bytes = {};  // From the start of `file`.
  std::string expected = {};
  std::string found = {};
};

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message, ErrorPlace place = {});

  ErrorCode code() const { return code_; }
  // The sentence alone, without the place.
  const std::string& message() const { return message_; }
  const ErrorPlace& place() const { return place_; }
  // "<file>: tensor <t>: at byte <n>: <message> (expected <e>, found <f>)".
  const char* what() const noexcept override { return text_.c_str(); }

  // Copies of this error with a place filled in where none is known yet; used
  // on the way up, by whoever knows the file or the tensor.
  Error WithFile(std::string_view file) const;
  Error WithTensor(std::string_view tensor) const;

 private:
  ErrorCode code_;
  std::string message_;
  ErrorPlace place_;
  std::string text_;
};

}  // namespace muonstore

#endif  // MUONSTORE_ERROR_H_
