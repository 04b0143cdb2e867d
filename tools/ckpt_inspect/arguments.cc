#include "tools/ckpt_inspect/arguments.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::tools {
namespace {

// True where "--tag step5" is one option of some command.
bool TakesValue(const CLI::App& root, const std::string& argument) {
  if (argument.find('=') != std::string::npos) return false;
  for (const CLI::App* app : root.get_subcommands({})) {
    const CLI::Option* option = app->get_option_no_throw(argument);
    if (option != nullptr) return option->get_items_expected_max() > 0;
  }
  return false;
}

// Index of the first word that is no option and no option's value.
std::optional<size_t> FirstWord(const CLI::App& root,
                                const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.size() < 2 || argument[0] != '-') return i;
    if (TakesValue(root, argument)) ++i;
  }
  return std::nullopt;
}

bool IsCommand(const CLI::App& root, const std::string& word) {
  const auto commands = root.get_subcommands({});
  return std::any_of(
      commands.begin(), commands.end(),
      [&](const CLI::App* app) { return app->get_name() == word; });
}

bool LooksLikePath(const std::string& word) {
  std::error_code ignored;
  return word.find_first_of("/.") != std::string::npos ||
         std::filesystem::exists(word, ignored);
}

[[noreturn]] void ThrowUnknown(const CLI::App& root, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* app : root.get_subcommands({})) {
    names.push_back(app->get_name());
  }
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("'", word,
                     "' is neither a command nor a file here; "
                     "commands: ",
                     JoinNames(names, names.size())));
}

}  // namespace

std::vector<std::string> WithCommandFirst(const CLI::App& root,
                                          std::vector<std::string> arguments) {
  const auto word = FirstWord(root, arguments);
  if (!word) return arguments;
  const auto at = arguments.begin() + static_cast<std::ptrdiff_t>(*word);
  if (IsCommand(root, *at)) {
    std::rotate(arguments.begin(), at, at + 1);
  } else if (LooksLikePath(*at)) {
    arguments.insert(arguments.begin(), "summary");
  } else {
    ThrowUnknown(root, *at);
  }
  return arguments;
}

}  // namespace muonstore::tools
