// A folder that a test may fill; removed at its end.
#ifndef MUONSTORE_TESTS_TESTUTIL_SCRATCH_H_
#define MUONSTORE_TESTS_TESTUTIL_SCRATCH_H_

#include <filesystem>
#include <string>
#include <string_view>

namespace muonstore::testutil {

class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const {
    return path_ / name;
  }

  // A writable copy of a file or folder under `name`; returns its path.
  std::filesystem::path Copy(const std::filesystem::path& from,
                             std::string_view name) const;

 private:
  std::filesystem::path path_;
};

std::string ReadBytes(const std::filesystem::path& path);
void WriteBytes(const std::filesystem::path& path, std::string_view bytes);

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TESTUTIL_SCRATCH_H_
