// Writes docs/reference: bazel run //tests/docs:make_reference

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "tests/docs/proto_reference.h"

int main() {
  const char* const root = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  if (root == nullptr) {
    std::cerr << "make_reference: not under `bazel run`\n";
    return 1;
  }
  for (const auto& page : ballast::MakeReference()) {
    std::ofstream file(std::string(root) + "/" + page.path);
    file << page.text;
    file.close();
    if (!file) {
      std::cerr << "make_reference: cannot write " << page.path << "\n";
      return 1;
    }
  }
  return 0;
}
