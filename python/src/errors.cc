// muonstore::Error as muonstore.Error, with the same code and text.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "muonstore/error.h"
#include "python/src/bindings.h"
#include "python/src/words.h"

namespace muonstore::python {
namespace {

namespace nb = nanobind;

// Names from files may be no UTF-8.
nb::object Text(const std::string& text) {
  return nb::steal(PyUnicode_DecodeUTF8(
      text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

nb::object TextOrNone(const std::string& text) {
  return text.empty() ? nb::none() : Text(text);
}

nb::object OffsetOrNone(const std::optional<uint64_t>& offset) {
  return offset ? nb::object(nb::int_(*offset)) : nb::none();
}

// The library's words for a way out are the tools' options.
Error ForPython(const Error& error) {
  ErrorPlace place = error.place();
  place.expected = InPythonsWords(place.expected);
  return {error.code(), InPythonsWords(error.message()), std::move(place)};
}

void Translate(const std::exception_ptr& thrown, void* /*payload*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& thrown_error) {
    const Error error = ForPython(thrown_error);
    const ErrorPlace& place = error.place();
    const std::string code(ErrorCodeName(error.code()));
    const nb::object made =
        nb::module_::import_("muonstore._errors")
            .attr("make")(code, Text(error.what()), Text(error.message()),
                          TextOrNone(place.file), TextOrNone(place.tensor),
                          OffsetOrNone(place.offset_bytes),
                          TextOrNone(place.expected), TextOrNone(place.found));
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())),
                    made.ptr());
  }
}

ErrorCode ParseCode(const std::string& name) {
  for (const ErrorCode code :
       {ErrorCode::kInvalidArgument, ErrorCode::kNotFound, ErrorCode::kDataLoss,
        ErrorCode::kUnsupported, ErrorCode::kResourceExhausted,
        ErrorCode::kUnavailable}) {
    if (name == ErrorCodeName(code)) return code;
  }
  return ErrorCode::kInternal;
}

}  // namespace

void BindErrors(nb::module_& module) {
  nb::register_exception_translator(Translate);
  module.def(
      "fail",
      [](const std::string& code, const std::string& message,
         const std::string& file, const std::string& tensor,
         const std::string& expected, const std::string& found) {
        throw Error(ParseCode(code), message,
                    {.file = file,
                     .tensor = tensor,
                     .expected = expected,
                     .found = found});
      },
      nb::arg("code"), nb::arg("message"), nb::kw_only(), nb::arg("file") = "",
      nb::arg("tensor") = "", nb::arg("expected") = "", nb::arg("found") = "",
      "Raises the error of a code, its text put together as all errors' are.");
}

}  // namespace muonstore::python
