// Compares texts and what is supervised of them with transformers', as written
// by make_vectors.py.
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/small_file.h"
#include "server/corpus/data_fault.h"
#include "server/text/template/rendered_text.h"
#include "tests/server/text/template/renderer_fixture.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr char kVectors[] =
    "tests/server/text/template/testdata/templates.json";

class TemplateVectorsTest : public RendererTest {};

TEST_F(TemplateVectorsTest, TextAndSpansEqualTransformers) {
  const Json vectors =
      Json::parse(ReadSmallFile(kVectors, size_t{1} << 20).value());
  std::map<std::string, std::unique_ptr<TemplateRenderer>> renderers;
  for (const auto& [name, text] : vectors["templates"].items()) {
    auto made = TemplateRenderer::Create(
        {.text = text, .variables = vectors["variables"].dump()}, {});
    ASSERT_TRUE(made.ok()) << made.status();
    renderers[name] = *std::move(made);
  }
  ASSERT_GE(renderers.size(), 10u);
  ASSERT_GT(vectors["cases"].size(), 70u);
  for (const Json& expected : vectors["cases"]) {
    SCOPED_TRACE(expected.dump());
    const TemplateRenderer& renderer = *renderers[expected["template"]];
    const std::string json =
        vectors["rows"][expected["row"].get<size_t>()].dump();
    const auto got = RenderSupervised(renderer, {}, json, /*has_images=*/false);
    if (expected.contains("error")) {
      EXPECT_TRUE(IsDataFault(got.status()));
      // The date comes first, and none is given.
      if (expected["template"] == "date") continue;
      EXPECT_THAT(std::string(got.status().message()),
                  HasSubstr(expected["error"].get<std::string>()));
      continue;
    }
    if (expected["pieces"].is_null()) {
      EXPECT_TRUE(IsDataFault(got.status()));
      EXPECT_THAT(std::string(got.status().message()),
                  HasSubstr("{% generation %}"));
      EXPECT_EQ(renderer.Render({json})->text, expected["text"]);
      continue;
    }
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->text, expected["text"]);
    std::vector<std::string> pieces;
    for (const auto& span : got->supervised) {
      pieces.push_back(got->text.substr(span.begin, span.end - span.begin));
    }
    EXPECT_EQ(pieces, expected["pieces"].get<std::vector<std::string>>());
  }
}

}  // namespace
}  // namespace ballast
