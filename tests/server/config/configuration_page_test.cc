// The example in docs/configuration.md loads, and the page names every key.

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/config.pb.h"
#include "server/config/config_loader.h"

namespace ballast {
namespace {

std::string ReadPage() {
  std::ifstream file("docs/configuration.md");
  EXPECT_TRUE(file.is_open());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Collects the names of the keys of `message` and of all sections inside it.
void CollectKeys(const google::protobuf::Descriptor* message,
                 std::set<std::string>* keys) {
  for (int i = 0; i < message->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = message->field(i);
    if (!message->options().map_entry()) keys->insert(field->name());
    if (field->message_type() != nullptr) {
      CollectKeys(field->message_type(), keys);
    }
  }
}

TEST(ConfigurationPage, ItsExampleLoads) {
  const std::string page = ReadPage();
  const std::string fence = "```yaml\n";
  const size_t begin = page.find(fence);
  ASSERT_NE(begin, std::string::npos);
  const size_t end = page.find("```", begin + fence.size());
  const auto loaded =
      ParseConfig(page.substr(begin + fence.size(), end - begin - fence.size()),
                  "docs/configuration.md", ".");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.sources_size(), 2);
  EXPECT_EQ(loaded->config.serve().max_bad_samples(), 100u);
}

TEST(ConfigurationPage, NamesEveryKey) {
  const std::string page = ReadPage();
  std::set<std::string> keys;
  CollectKeys(v1::Config::descriptor(), &keys);
  EXPECT_GE(keys.size(), 60u);
  for (const std::string& key : keys) {
    EXPECT_TRUE(absl::StrContains(page, absl::StrCat("`", key, "`")) ||
                absl::StrContains(page, absl::StrCat("## ", key, "\n")) ||
                absl::StrContains(page, absl::StrCat(".", key, "`")))
        << key;
  }
}

}  // namespace
}  // namespace ballast
