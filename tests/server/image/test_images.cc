#include "tests/server/image/test_images.h"

#include <gtest/gtest.h>

namespace ballast {

nlohmann::json ReadJsonOrFail(const std::string& path) {
  nlohmann::json json = nlohmann::json::parse(ReadFile(path), nullptr, false);
  if (json.is_discarded()) ADD_FAILURE() << path << " is not JSON";
  return json;
}

std::string TestDataPath(const std::string& name) {
  return "tests/server/image/testdata/" + name;
}

}  // namespace ballast
