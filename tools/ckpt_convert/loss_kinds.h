// What --allow-loss knows.
//
// What: the kinds of loss that a conversion may have, with what each means.
// Threads, failures: constants and pure functions.
#ifndef MUONSTORE_TOOLS_CKPT_CONVERT_LOSS_KINDS_H_
#define MUONSTORE_TOOLS_CKPT_CONVERT_LOSS_KINDS_H_

#include <string>
#include <string_view>

namespace muonstore::tools {

// Of what --carry-files cannot copy.
inline constexpr const char* kSpecialFilesLoss = "special_files";

bool IsLossKind(std::string_view kind);
// "missing, overflow, ..."
std::string LossKindNames();
// A table for --help.
std::string LossKindHelp();

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_CONVERT_LOSS_KINDS_H_
