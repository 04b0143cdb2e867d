// Refuses JSON objects in which a key comes twice: one reader would take the
// first value, another the last.
#ifndef MUONSTORE_SRC_BASE_UNIQUE_JSON_KEYS_H_
#define MUONSTORE_SRC_BASE_UNIQUE_JSON_KEYS_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace muonstore {

// A callback for Json::parse (nlohmann-json). `refuse`(key) throws.
template <typename Json, typename Refuse>
auto UniqueJsonKeys(Refuse refuse) {
  using Event = typename Json::parse_event_t;
  return
      [keys = std::vector<std::set<std::string>>(), refuse = std::move(refuse)](
          int /*depth*/, Event event, Json& value) mutable {
        if (event == Event::object_start) keys.emplace_back();
        if (event == Event::object_end) keys.pop_back();
        if (event == Event::key) {
          const auto& key = value.template get_ref<const std::string&>();
          if (!keys.back().insert(key).second) refuse(key);
        }
        return true;
      };
}

}  // namespace muonstore

#endif  // MUONSTORE_SRC_BASE_UNIQUE_JSON_KEYS_H_
