// copy_files OUT FOLDER...: copies every sound torch file below the folders
// and prints "source<TAB>copy" lines, for torch_oracle_test.py.

#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "tests/torchfile/writing.h"

namespace {

namespace fs = std::filesystem;
using muonstore::torchfile::TorchFile;

void CopyIfSound(const fs::path& from, const fs::path& to) {
  try {
    const auto file =
        TorchFile::Open(muonstore::PosixFileSystem(), from.string());
    if (!file->Verify().empty()) {
      return;
    }
    std::ofstream(to, std::ios::binary) << muonstore::torchfile::CopyFile(file);
    std::cout << from.string() << '\t' << to.string() << '\n';
  } catch (const muonstore::Error&) {
    // Not a sound file.
  }
}

}  // namespace

int main(int argc, char** argv) {
  int number = 0;
  for (int i = 2; i < argc; ++i) {
    for (const auto& entry : fs::recursive_directory_iterator(argv[i])) {
      if (entry.path().extension() == ".pt") {
        CopyIfSound(entry.path(),
                    fs::path(argv[1]) / (std::to_string(number++) + ".pt"));
      }
    }
  }
  return 0;
}
