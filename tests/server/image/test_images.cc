#include "tests/server/image/test_images.h"

#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

namespace ballast {

std::string ReadFileOrFail(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    ADD_FAILURE() << path << " cannot be read";
    return "";
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

nlohmann::json ReadJsonOrFail(const std::string& path) {
  nlohmann::json json =
      nlohmann::json::parse(ReadFileOrFail(path), nullptr, false);
  if (json.is_discarded()) ADD_FAILURE() << path << " is not JSON";
  return json;
}

std::string TestDataPath(const std::string& name) {
  return "tests/server/image/testdata/" + name;
}

}  // namespace ballast
