#ifndef BALLAST_TESTS_FAKES_READ_FILE_H_
#define BALLAST_TESTS_FAKES_READ_FILE_H_

#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace ballast {

// The bytes of a file; the test fails if it cannot be read. An iterator over
// the stream would take 50 ns a byte where nothing is optimised.
inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return std::move(bytes).str();
}

// The JSON of a file; the test fails if it cannot be read or is none.
inline nlohmann::json ReadJsonOrFail(const std::string& path) {
  nlohmann::json json = nlohmann::json::parse(ReadFile(path), nullptr, false);
  if (json.is_discarded()) ADD_FAILURE() << path << " is not JSON";
  return json;
}

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_READ_FILE_H_
