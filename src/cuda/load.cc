#include "src/cuda/load.h"

#include <dlfcn.h>

#include <vector>

#include "src/base/str.h"

namespace muonstore::cuda {
namespace {

constexpr const char* kPluginName = "libmuonstore_cuda.so";

const Plugin* LoadFrom(const std::string& path, std::string& reason) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NODELETE);
  if (library == nullptr) {
    const char* error = ::dlerror();
    if (!reason.empty()) reason += "; ";
    reason += error != nullptr ? error : path;
    return nullptr;
  }
  const auto function =
      reinterpret_cast<PluginFunction>(::dlsym(library, Plugin::kSymbol));
  const Plugin* plugin = function != nullptr ? function() : nullptr;
  if (plugin == nullptr || plugin->version != Plugin::kVersion) {
    reason = StrCat(path, " is of another build of muonstore");
    return nullptr;
  }
  return plugin;
}

}  // namespace

const Plugin* LoadPlugin(const std::string& path, std::string& reason) {
  const std::vector<std::string> paths =
      path.empty()
          ? std::vector<std::string>{kPluginName, StrCat(MUONSTORE_PLUGIN_DIR,
                                                         "/", kPluginName)}
          : std::vector<std::string>{path};
  for (const std::string& candidate : paths) {
    const Plugin* plugin = LoadFrom(candidate, reason);
    if (plugin != nullptr) return plugin;
  }
  return nullptr;
}

}  // namespace muonstore::cuda
