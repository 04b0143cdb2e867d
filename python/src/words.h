// What is said to users of Python.
//
// What: errors and notes name the options of the tools where they say what to
//   do next. The same things are parameters here: "pick a tag with --tag"
//   becomes "pick a tag with `tag`", --allow-loss becomes `allow_loss`.
// Ownership, threads: pure.
// Failures: none; text without options stays as it is, paths with dashes, too.

#ifndef MUONSTORE_PYTHON_SRC_WORDS_H_
#define MUONSTORE_PYTHON_SRC_WORDS_H_

#include <string>
#include <string_view>

namespace muonstore::python {

std::string InPythonsWords(std::string_view text);

}  // namespace muonstore::python

#endif  // MUONSTORE_PYTHON_SRC_WORDS_H_
