#ifndef BALLAST_TESTS_SERVER_IMAGE_TEST_IMAGES_H_
#define BALLAST_TESTS_SERVER_IMAGE_TEST_IMAGES_H_

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"

namespace ballast {

// A whole file. Fails the running test, and returns nothing, where it cannot be
// read.
std::string ReadFileOrFail(const std::string& path);

// A JSON file, likewise.
nlohmann::json ReadJsonOrFail(const std::string& path);

// Where `name` of testdata, drawn by make_vectors.py, lies.
std::string TestDataPath(const std::string& name);

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_IMAGE_TEST_IMAGES_H_
