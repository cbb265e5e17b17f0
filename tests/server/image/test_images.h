#ifndef BALLAST_TESTS_SERVER_IMAGE_TEST_IMAGES_H_
#define BALLAST_TESTS_SERVER_IMAGE_TEST_IMAGES_H_

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"

namespace ballast {

// Reads a whole file. Fails the running test, and returns an empty string, if
// it cannot be read.
std::string ReadFileOrFail(const std::string& path);

// Reads a JSON file. Fails the running test if it cannot be read.
nlohmann::json ReadJsonOrFail(const std::string& path);

// The path of `name` in testdata, drawn by make_vectors.py.
std::string TestDataPath(const std::string& name);

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_IMAGE_TEST_IMAGES_H_
