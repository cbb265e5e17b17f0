// Writes docs/reference: bazel run //tests/docs:make_reference
// With --promise, also what this release promises (deploy/release.sh).

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "tests/docs/promise.h"
#include "tests/docs/proto_reference.h"

int main(int argc, char** argv) {
  const char* const root = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  if (root == nullptr) {
    std::cerr << "make_reference: not under `bazel run`\n";
    return 1;
  }
  std::vector<ballast::ReferencePage> pages = ballast::MakeReference();
  if (argc > 1 && std::string(argv[1]) == "--promise") {
    std::string text = absl::StrCat("# What release ", ballast::kVersion,
                                    " keeps: docs/upgrading.md\n");
    for (const std::string& line : ballast::ListPromise()) {
      absl::StrAppend(&text, line, "\n");
    }
    pages.push_back({"docs/reference/promise.txt", text});
  }
  for (const auto& page : pages) {
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
